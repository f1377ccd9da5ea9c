// SPDX-License-Identifier: Apache-2.0
// Tests of the double's communicators whose ranks are processes.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using NcclProcesses = FakeDeviceTest;

pid_t start(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t process = -1;
  EXPECT_EQ(posix_spawn(&process, pointers[0], nullptr, nullptr, pointers.data(), environ), 0);
  return process;
}

// Runs `size` processes as ranks; all must end with 0. The test's process makes the id, and is not a rank.
void run_processes(const char* mode, int size) {
  const ncclUniqueId id = make_nccl_id();
  std::string digits;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char byte : id.internal) {
    const auto number = static_cast<unsigned char>(byte);
    digits += {kDigits[number / 16], kDigits[number % 16]};
  }
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(start({FARANDOLE_FAKE_NCCL_RANK, mode, std::to_string(rank), std::to_string(size), digits}));
  }
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(NcclProcesses, AddUp) {
  run_processes("sums", 3);
}

TEST_F(NcclProcesses, HearOfAPeerThatDies) {
  run_processes("dies", 2);
}

TEST_F(NcclProcesses, BothReportBytesThatDiffer) {
  run_processes("differs", 2);
}

}  // namespace
}  // namespace farandole::fake
