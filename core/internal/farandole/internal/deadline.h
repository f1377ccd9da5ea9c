// SPDX-License-Identifier: Apache-2.0
// Points in time on the monotonic clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

using Clock = std::chrono::steady_clock;

/// Returns the time with a resolution of a few milliseconds, at a tenth of the cost of Clock::now().
inline Clock::time_point coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

/// Detects time in which a waiter did not run: its process was stopped (SIGSTOP, the freezer of a batch system, a
/// debugger), or got no core. Such time must not count as waiting, because the awaited event may have happened
/// meanwhile, or will happen once the rest of the job continues.
///
/// Each waiter has its own detector and calls `check` at least every 100 ms; a longer gap than `kMaxGap` is lost time.
/// A waiter that pauses its calls on purpose reports the pause (`StallMonitor::count_gap`). Not thread-safe.
class StopDetector {
 public:
  static constexpr std::chrono::milliseconds kMaxGap{1000};  ///< longer than any waiter sleeps
  static constexpr std::chrono::milliseconds kCounted{100};  ///< part of a longer gap that counts as waiting: the sleep

  /// @param start  start of the wait
  explicit StopDetector(Clock::time_point start) : last_(start) {}
  Clock::time_point last_check() const { return last_; }
  /// Lost time between the last check and `now`.
  Clock::duration lost(Clock::time_point now) const {
    const Clock::duration gap = now - last_;
    return gap > kMaxGap ? gap - kCounted : Clock::duration{0};
  }
  /// Returns `lost(now)`, and makes `now` the last check.
  Clock::duration check(Clock::time_point now) {
    const Clock::duration gap = lost(now);
    last_ = std::max(last_, now);
    return gap;
  }

 private:
  Clock::time_point last_;
};

/// A point in time after which an operation is too late, or `never`. Time in which the process was stopped does not
/// count (StopDetector).
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point{}, Clock::time_point::max()); }
  static Deadline after(std::chrono::duration<double> delay) {
    const auto now = Clock::now();
    return Deadline(now, now + std::chrono::duration_cast<Clock::duration>(delay));
  }
  bool is_never() const { return when_ == Clock::time_point::max(); }
  /// True once the deadline has passed. Call it regularly while waiting, at least every 100 ms.
  bool passed(Clock::time_point now = Clock::now()) const {
    if (is_never()) return false;
    when_ += stops_.check(now);
    return now >= when_;
  }

 private:
  Deadline(Clock::time_point now, Clock::time_point when) : stops_(now), when_(when) {}
  mutable StopDetector stops_;
  mutable Clock::time_point when_;  // postponed by lost time
};

}  // namespace FARANDOLE_API
