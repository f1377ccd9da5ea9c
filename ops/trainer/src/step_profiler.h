// SPDX-License-Identifier: Apache-2.0
// Measures where the time of training steps goes, by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "farandole/internal/deadline.h"
#include "farandole/trainer/profile.h"
#include "graph_structure.h"

namespace farandole::trainer {

/// Parts of a training step beside its layers. kRest is whatever nothing else claims.
enum class StepPart : std::uint8_t { kRest, kInput, kLoss, kAveraging, kUpdate };
inline constexpr std::size_t kStepParts = 5;

enum class Direction : std::uint8_t { kForward, kBackward };

/// A stopwatch with a slot for each part, and for each direction of each layer. Exactly one slot runs at a time, so the
/// slots add up to the training step. Slots are nested: a ProfiledPart starts a slot, and then continues the one
/// before.
///
///     profiler.begin_step();                                         // kRest runs
///     {
///       const ProfiledPart part(&profiler, StepPart::kLoss);
///       …
///     }
///     profiler.end_step(samples);                                    // or without, and the step does not count
///     profiler.report(model.work());
///
/// Not thread-safe: used by the replica's thread.
class StepProfiler {
 public:
  using Now = Clock::time_point (*)();

  /// @param layers  number of rows of Model::work   @param now  a clock
  explicit StepProfiler(std::size_t layers, Now now = Clock::now) : now_(now), current_(kStepParts + 2 * layers) {}

  static std::size_t slot(StepPart part) { return static_cast<std::size_t>(part); }
  static std::size_t slot(std::size_t row, Direction direction) {
    return kStepParts + 2 * row + (direction == Direction::kBackward ? 1 : 0);
  }

  /// Forgets all training steps. The next `kWarmUp` do not count.
  void restart();
  void begin_step();
  /// Keeps the times of the training step, unless it belongs to the warm-up. @param samples  of this replica
  void end_step(std::int64_t samples);
  /// Starts a slot. Returns the slot that ran before.
  std::size_t start(std::size_t slot);

  /// Number of training steps that count.
  std::int64_t steps() const { return static_cast<std::int64_t>(steps_.size()); }
  /// Medians of the times; without peak and facts of the replicas. There must be a training step.
  TrainingProfile report(const std::vector<LayerWork>& layers) const;

  static constexpr std::int64_t kWarmUp = 3;

 private:
  static constexpr std::size_t kMaxSteps = 1024;

  struct Step {
    std::int64_t samples = 0;
    std::vector<double> seconds;  ///< of each slot

    double total() const;
  };

  const Now now_;
  std::vector<double> current_;  ///< seconds of each slot in the training step at hand
  std::size_t running_ = 0;
  Clock::time_point since_{};  ///< start of the running slot
  std::int64_t warm_up_ = kWarmUp;
  std::deque<Step> steps_;
};

/// A scope whose time counts for a part, or for a layer. No-op without a profiler, and for a node without a row.
class ProfiledPart {
 public:
  ProfiledPart(StepProfiler* profiler, StepPart part) : profiler_(profiler) {
    if (profiler_ != nullptr) former_ = profiler_->start(StepProfiler::slot(part));
  }
  /// @param row  NodeSpec::row
  ProfiledPart(StepProfiler* profiler, std::size_t row, Direction direction)
      : profiler_(row == NodeSpec::kNoRow ? nullptr : profiler) {
    if (profiler_ != nullptr) former_ = profiler_->start(StepProfiler::slot(row, direction));
  }
  ~ProfiledPart() {
    if (profiler_ != nullptr) profiler_->start(former_);
  }
  ProfiledPart(const ProfiledPart&) = delete;
  ProfiledPart& operator=(const ProfiledPart&) = delete;

 private:
  StepProfiler* const profiler_;
  std::size_t former_ = 0;
};

}  // namespace farandole::trainer
