// SPDX-License-Identifier: Apache-2.0
// Whether a rank that waits will do something else before what it waits for is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"

namespace farandole {

/// A rank stands still when for a while nothing has happened in its engine, and its process has hardly used a
/// processor. One that is late because it computes, or prepares data, does not stand still. One that sleeps, or waits
/// for a file or the network, cannot be told from a rank that waits for other ranks only.
///
/// Used by one thread at a time.
class IdleDetector {
 public:
  using ProcessorTime = std::chrono::nanoseconds;

  /// @param lasts  after this long a rank stands still   @param processor_time  of the process so far
  explicit IdleDetector(Seconds lasts, std::function<ProcessorTime()> processor_time = processor_time_of_process);

  /// To be called again and again while the rank waits. Makes no system call unless it waits for long.
  /// @param happened  changes when something happens in the engine
  /// @returns  true once, when the rank has come to stand still
  bool look(std::uint64_t happened, Clock::time_point now);
  /// The rank does not wait.
  void end();
  /// The rank stands still, and nothing has happened since it was found.
  bool holds(std::uint64_t happened) const { return holds_ && happened == happened_; }

  static ProcessorTime processor_time_of_process();

 private:
  struct Sample {
    Clock::time_point at{};
    ProcessorTime used{0};
  };

  const Seconds lasts_;
  const std::function<ProcessorTime()> processor_time_;
  std::optional<Clock::time_point> looked_;  // last
  std::uint64_t happened_ = 0;
  std::optional<Sample> first_;  // while it has hardly used a processor since
  Clock::time_point sampled_{};  // last
  bool holds_ = false;
};

}  // namespace farandole
