// SPDX-License-Identifier: Apache-2.0
// The loss scale of a training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Replaces LossScaleOptions::Kind::kAutomatic by what it stands for.
LossScaleOptions::Kind loss_scale_kind(const TrainerOptions& options);

/// The loss scale in the memory of the device. All replicas see the same averaged gradients, so all change it alike.
///
///     model.backward(…);                 // of a loss times loss_scaling.on_device()->scale
///     optimizer.update(…);               // with UpdateStep::loss_scale = loss_scaling.on_device()
///     model.move_statistics(loss_scaling.on_device());
///     loss_scaling.end_step();
class LossScaling {
 public:
  /// @param execution  outlives this object   @throws DeviceError
  LossScaling(const Execution& execution, const TrainerOptions& options);

  /// Null without a loss scale.
  LossScale* on_device();
  bool is_on() const { return kind_ != LossScaleOptions::Kind::kNone; }
  /// Continues with the scale of a checkpoint. Without a loss scale keeps the state for later checkpoints.
  void restore(const std::optional<LossScaleState>& state);
  /// Waits for the device. Empty without a loss scale.
  std::optional<LossScaleState> state() const;
  /// State for a checkpoint. Waits for the device. Without a loss scale the state of the checkpoint that the training
  /// has gone on from; empty if that had none.
  std::optional<LossScaleState> saved() const { return is_on() ? state() : restored_; }
  /// UpdateStep::skipped_steps: 0 with a loss scale, which counts them on the device.
  std::int64_t skipped_before() const { return is_on() || !restored_ ? 0 : restored_->skipped_steps; }
  /// Enqueues the change of the scale after an update. No-op without a loss scale.
  void end_step();

 private:
  void set(const LossScaleState& state);

  const Execution& execution_;
  const LossScaleOptions options_;
  const LossScaleOptions::Kind kind_;
  Buffer values_;
  std::optional<LossScaleState> restored_;
};

/// Tells whether a loss that is no finite number ends a training with a loss scale. The same on all replicas.
class SkippedLosses {
 public:
  /// @param compute  type of products and convolutions, for the text
  SkippedLosses(const LossScaleOptions& options, DType compute) : options_(options), compute_(compute) {}

  /// Forgets the training steps before.
  void restart() { in_a_row_ = 0; }
  /// Takes the result of the next training step. Returns why the training ends; empty: it goes on, because the loss is
  /// finite, or because the training step is skipped.
  /// @param after  the loss scale after the update
  std::string judge(double loss, const LossScale& after);

 private:
  /// Training steps in a row with such a loss after which a training ends.
  static constexpr std::int64_t kMaxInARow = 20;

  const LossScaleOptions options_;
  const DType compute_;
  std::int64_t in_a_row_ = 0;
  bool was_smallest_ = false;  // the scale of the training step at hand could not be halved
};

}  // namespace farandole::trainer
