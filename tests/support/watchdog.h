// SPDX-License-Identifier: Apache-2.0
// Ends a test program that hangs, after printing where it hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace farandole::test {

/// While the object lives, aborts the process if a test runs longer than the limit, after printing the test's name.
/// FARANDOLE_TIMEOUT (see main.cpp) reports collectives that hang earlier, with ranks and sequence numbers.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Call when a test begins.
  void restart(std::string test);

 private:
  void run();
  const std::chrono::seconds limit_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::string test_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farandole::test
