// SPDX-License-Identifier: Apache-2.0
// Detects that a waiting rank is idle: the rank will do nothing before a pending request is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"

namespace farandole {

/// A rank is *idle* if for some time its engine has made no progress and its process has used hardly any CPU time. A
/// rank that is late because it computes or prepares data is not idle. Limit: a rank that sleeps, or waits for a file
/// or the network, looks idle.
///
/// How it works: while the rank waits, the caller polls; at most every 50 ms a poll reads the CPU time of the process.
/// The idle time is measured anew when the engine makes progress, when the process uses more CPU time than polling
/// costs, or after a gap between polls (the process was stopped).
///
/// Not thread-safe.
class IdleDetector {
 public:
  using ProcessorTime = std::chrono::nanoseconds;

  /// @param threshold  time without progress after which the rank is idle
  /// @param processor_time  returns the CPU time of the process so far
  explicit IdleDetector(Seconds threshold, std::function<ProcessorTime()> processor_time = processor_time_of_process);

  /// Call repeatedly while the rank waits. Makes no system call until the rank has waited for 50 ms.
  /// @param progress  a number that changes when the engine makes progress
  /// @returns  true once, when the rank has become idle
  bool update(std::uint64_t progress, Clock::time_point now);
  /// Call when the rank no longer waits.
  void end();
  /// True if the rank is idle and the engine has made no progress since.
  bool is_idle(std::uint64_t progress) const { return is_idle_ && progress == progress_; }

  static ProcessorTime processor_time_of_process();

 private:
  /// CPU time of the process at a moment.
  struct Sample {
    Clock::time_point at{};
    ProcessorTime used{0};
  };

  const Seconds threshold_;
  const std::function<ProcessorTime()> processor_time_;
  std::optional<Clock::time_point> last_poll_;
  std::uint64_t progress_ = 0;
  // First sample of the current period in which the process has used hardly any CPU time; nothing before the first
  // sample.
  std::optional<Sample> idle_since_;
  Clock::time_point last_sample_{};
  bool is_idle_ = false;
};

}  // namespace farandole
