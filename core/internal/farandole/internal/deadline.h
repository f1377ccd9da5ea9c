// SPDX-License-Identifier: Apache-2.0
// Points in time on the monotonic clock.
#pragma once

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

/// A moment after which something is too late, or never.
class Deadline {
 public:
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline after(std::chrono::duration<double> delay) {
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(delay));
  }
  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool passed(Clock::time_point now = Clock::now()) const { return now >= when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace FARANDOLE_API
