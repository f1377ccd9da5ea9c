// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/library_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace farandole {
namespace {

constexpr std::uint64_t bit_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

/// This process's threads, by number.
std::set<std::string> threads() {
  std::set<std::string> numbers;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    numbers.insert(task.path().filename().string());
  }
  return numbers;
}

/// The signals that a thread blocks, a bit each. A thread that begins blocks all for a moment.
std::uint64_t blocked_by(const std::string& thread) {
  std::uint64_t blocked = 0;
  std::ifstream status("/proc/self/task/" + thread + "/status");
  for (std::string word; status >> word;) {
    if (word == "SigBlk:") status >> std::hex >> blocked;
  }
  return blocked;
}

TEST(SignalsDiverted, NewThreadsBlockAllButSynchronousSignals) {
  ASSERT_FALSE(is_blocked(SIGTERM));
  {
    const SignalsDiverted diverted;
    bool blocks = false, blocks_own_mistakes = true;
    std::thread([&] {
      blocks = is_blocked(SIGTERM) && is_blocked(SIGINT) && is_blocked(SIGTSTP);
      blocks_own_mistakes = is_blocked(SIGSEGV);
    }).join();
    EXPECT_TRUE(blocks);
    EXPECT_FALSE(blocks_own_mistakes);
  }
  EXPECT_FALSE(is_blocked(SIGTERM));
}

TEST(SignalsDiverted, HelperThreadHasTheCallersSignalMask) {
  sigset_t awaited, former;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &awaited, &former);
  const std::set<std::string> before = threads();
  {
    const SignalsDiverted diverted;
    std::set<std::string> added = threads();
    std::erase_if(added, [&](const std::string& thread) { return before.contains(thread); });
    ASSERT_EQ(added.size(), 1U);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (blocked_by(*added.begin()) != bit_of(SIGUSR1) && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    EXPECT_EQ(blocked_by(*added.begin()), bit_of(SIGUSR1));
  }
  EXPECT_TRUE(is_blocked(SIGUSR1));
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

}  // namespace
}  // namespace farandole
