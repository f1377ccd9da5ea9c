// SPDX-License-Identifier: Apache-2.0
// Ends a test program that hangs, after printing where it hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace farandole::test {

/// While it lives, a test that runs longer than the limit is reported with its name and the process is aborted.
/// Collectives that hang are reported earlier, and with ranks and sequence numbers, by FARANDOLE_TIMEOUT (see
/// main.cpp).
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// A test begins.
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
