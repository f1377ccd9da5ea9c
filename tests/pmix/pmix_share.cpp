// SPDX-License-Identifier: Apache-2.0
// usage: pmix_share DIRECTORY [forks | absent | misuse]     a process without MPI of a job that PMIx describes
// Joins twice, and each time shares 32 random bytes of process 0 twice. Prints a line that ends with the received
// bytes. Each process makes a file in DIRECTORY, which is empty before, when it has received the bytes; process 0 waits
// for these files.
//   forks   each process first forks a child, which releases the client and exits before anything is shared
//   absent  process 0 never joins; the test kills it
//   misuse  process 0 shares too many bytes
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "pmix/pmix_client.h"

using namespace farandole;
using pmix::PmixClient;

namespace {

std::string random_bytes() {
  std::string bytes(32, '\0');
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("no random numbers");
  return bytes;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

/// A child that destroys its copy of the client, and has ended when this returns. It cannot join.
void fork_child(std::unique_ptr<PmixClient>& client) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      PmixClient::join(Settings::from_environment());
      _exit(1);
    } catch (const InvalidArgument&) {
      client.reset();
    }
    std::exit(0);  // as a program does that knows nothing of what its parent has joined
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("the child has not ended well");
}

/// Process 0 waits until all processes have got what it has shared.
void end_sharing(const PmixClient& client, const std::string& directory, int join) {
  const auto file_of = [&](int process) {
    return std::filesystem::path(directory) / (std::to_string(join) + "." + std::to_string(process));
  };
  const std::ofstream mine(file_of(client.process()));
  if (!mine) throw std::runtime_error("no file can be made in " + directory);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (int process = 0; client.process() == 0 && process < client.processes(); ++process) {
    while (!std::filesystem::exists(file_of(process))) {
      if (deadline.passed())
        throw std::runtime_error("process " + std::to_string(process) + " has not got the bytes within 20 s");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::string share_twice(const std::string& directory, std::string_view mode, int join) {
  std::unique_ptr<PmixClient> client = PmixClient::join(Settings::from_environment());
  std::printf("process %d of %d in '%s': %s\n", client->process(), client->processes(), client->job().c_str(),
              client->describe().c_str());
  if (mode == "forks") fork_child(client);
  if (mode == "absent" && client->process() == 0) {
    while (true) pause();
  }
  const bool is_first = client->process() == 0;
  if (mode == "misuse") client->share(std::string(is_first ? PmixClient::kMaxSharedBytes + 1 : 0, 'x'));
  std::string came = client->share(is_first ? random_bytes() : std::string());
  came += client->share(is_first ? random_bytes() : std::string());
  end_sharing(*client, directory, join);
  return came;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::string directory = argc > 1 ? argv[1] : ".";
  const std::string_view mode = argc > 2 ? argv[2] : "";
  std::string came = share_twice(directory, mode, 1);
  came += share_twice(directory, mode, 2);
  std::printf("shared %s\n", hexadecimal(came).c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "pmix_share: %s\n", error.what());
  return 1;
}
