// SPDX-License-Identifier: Apache-2.0
// Points in time on the monotonic clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

using Clock = std::chrono::steady_clock;

/// The time to a few milliseconds, at a tenth of the cost.
inline Clock::time_point coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

/// Finds time in which a waiter could not look at its clock: its process was stopped (SIGSTOP, the freezer of a batch
/// system, a debugger), or got no processor. Such time is no waiting: what the waiter waits for may have come
/// meanwhile, or comes when the rest of the job goes on. Each waiter has its own, and looks every 100 ms at least; gaps
/// between calls of the program are none of its own (`StallMonitor::count_gap`). Not thread-safe.
class LookGaps {
 public:
  static constexpr std::chrono::milliseconds kLongestGap{1000};  ///< longer than any waiter sleeps
  static constexpr std::chrono::milliseconds kCounted{100};      ///< of a longer gap: a waiter's own sleep

  /// @param start  of the wait
  explicit LookGaps(Clock::time_point start) : last_(start) {}
  Clock::time_point last_look() const { return last_; }
  /// How much of the time since the last look does not count.
  Clock::duration lost(Clock::time_point now) const {
    const Clock::duration gap = now - last_;
    return gap > kLongestGap ? gap - kCounted : Clock::duration{0};
  }
  /// The same, and notes that this look is the last one.
  Clock::duration look(Clock::time_point now) {
    const Clock::duration gap = lost(now);
    last_ = std::max(last_, now);
    return gap;
  }

 private:
  Clock::time_point last_;
};

/// A moment after which something is too late, or never. Time in which the process was stopped does not count.
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point{}, Clock::time_point::max()); }
  static Deadline after(std::chrono::duration<double> delay) {
    const auto now = Clock::now();
    return Deadline(now, now + std::chrono::duration_cast<Clock::duration>(delay));
  }
  bool is_never() const { return when_ == Clock::time_point::max(); }
  /// To be asked while waiting.
  bool passed(Clock::time_point now = Clock::now()) const {
    if (is_never()) return false;
    when_ += gaps_.look(now);
    return now >= when_;
  }

 private:
  Deadline(Clock::time_point now, Clock::time_point when) : gaps_(now), when_(when) {}
  mutable LookGaps gaps_;
  mutable Clock::time_point when_;  // later after each gap
};

}  // namespace FARANDOLE_API
