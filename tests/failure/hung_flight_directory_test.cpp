// SPDX-License-Identifier: Apache-2.0
// A fault reaches all ranks even if its flight record cannot be written, because the directory's server does not answer
// or no memory is left. This is a separate program because it replaces functions of the system's libraries.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "replaced_new.h"
#include "variable.h"

namespace {

/// The end of the name of a directory that cannot be made before `answered`.
constexpr std::string_view kHung = "-hung";
std::latch answered(1);
/// Largest allocation that succeeds in this thread.
thread_local std::size_t max_bytes = std::numeric_limits<std::size_t>::max();

}  // namespace

extern "C" __attribute__((visibility("default"))) int mkdir(const char* path, mode_t mode) noexcept {
  // The test fails, but ends, if a fault waits for it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::string_view(path).ends_with(kHung) && !answered.try_wait() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

void* farandole::test::allocate(std::size_t bytes) {
  void* const memory = bytes > max_bytes ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void farandole::test::release(void* memory) noexcept {
  std::free(memory);
}

namespace farandole {
namespace {

using test::Variable;
using testing::HasSubstr;

/// A directory of this process for flight records, which goes with this object.
class Directory {
 public:
  explicit Directory(std::string_view ending)
      : path_(std::filesystem::temp_directory_path() /
              ("farandole-" + std::to_string(getpid()) + std::string(ending))) {}
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  bool has_soon(const std::string& name) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!std::filesystem::exists(path_ / name) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return std::filesystem::exists(path_ / name);
  }

 private:
  const std::filesystem::path path_;
};

/// Rank 1 aborts, and rank 0 must raise that.
/// @param memory  how many bytes rank 1 can have at once meanwhile
void abort_on_rank_1(std::size_t memory) {
  EXPECT_THROW(run_replicas(2,
                            [&](Communicator& ranks) {
                              std::vector<float> data(8);
                              for (int i = 0; i < 500; ++i) ranks.allreduce(data, ReduceOp::kSum);
                              if (ranks.rank() == 1) {
                                max_bytes = memory;
                                EXPECT_NO_THROW(ranks.abort("enough"));
                                max_bytes = std::numeric_limits<std::size_t>::max();
                              }
                              try {
                                ranks.barrier();
                              } catch (const PeerLost& error) {
                                EXPECT_THAT(error.what(), HasSubstr("enough"));
                                throw;
                              }
                            }),
               PeerLost);
}

TEST(HungFlightDirectory, AFaultDoesNotWaitForIt) {
  const Directory directory(kHung);
  const Variable flight("FARANDOLE_FLIGHT_DIR", directory.path());
  testing::internal::CaptureStderr();
  abort_on_rank_1(std::numeric_limits<std::size_t>::max());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("has not taken it within 2 s"));
  EXPECT_FALSE(std::filesystem::exists(directory.path()));
  answered.count_down();
  EXPECT_TRUE(directory.has_soon("rank-1.farandole-flight.json")) << "it is written when the directory answers";
}

TEST(HungFlightDirectory, AFaultNeedsNoMemoryForIt) {
  const Directory directory("-flight");
  const Variable flight("FARANDOLE_FLIGHT_DIR", directory.path());
  testing::internal::CaptureStderr();
  abort_on_rank_1(16 * 1024);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no memory is left"));
}

}  // namespace
}  // namespace farandole
