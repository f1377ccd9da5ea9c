// SPDX-License-Identifier: Apache-2.0
// The loss scale of a training.
#pragma once

#include <optional>

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
  /// Continues with the scale of a checkpoint. No-op without a loss scale.
  void restore(const std::optional<LossScaleState>& state);
  /// Waits for the device. Empty without a loss scale.
  std::optional<LossScaleState> state() const;
  /// Enqueues the change of the scale after an update. No-op without a loss scale.
  void end_step();

 private:
  void set(const LossScaleState& state);

  const Execution& execution_;
  const LossScaleOptions options_;
  const LossScaleOptions::Kind kind_;
  Buffer values_;
};

}  // namespace farandole::trainer
