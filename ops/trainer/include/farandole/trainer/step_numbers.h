// SPDX-License-Identifier: Apache-2.0
// Numbers that change from training step to training step, in the memory of a device.
#pragma once

#include <cstdint>

namespace farandole::trainer {

inline constexpr int kRuleNumbers = 2;

/// The numbers of a training step in the memory of a device, where the work of a captured training step reads them
/// (TrainerOptions::graph). Everything else is the same in each training step.
struct StepNumbers {
  std::int64_t training_step = 0;  ///< 0-based
  double learning_rate = 0;        ///< without the factors of parameter groups
  double of_rule[kRuleNumbers]{};  ///< UpdateRule::step_numbers
};

/// The loss scale of a training (LossScaleOptions). It lies in the memory of the device, whose kernels read and change
/// it, so that a training step is skipped without the host's help.
struct LossScale {
  double scale = 1;                ///< factor on the loss, and so on every gradient
  std::int64_t good_steps = 0;     ///< number of training steps since the last change of the scale
  std::int64_t skipped_steps = 0;  ///< number of skipped training steps since the first training step
  std::int64_t is_skipped = 0;     ///< 1: the training step at hand, a gradient of which is no finite number
};

/// The number of an update, of which the device knows a part.
struct UpdateCount {
  std::int64_t training_step = 0;             ///< 0-based
  const StepNumbers* step_numbers = nullptr;  ///< null, or on the device: has the training step instead
  const LossScale* loss_scale = nullptr;      ///< in the memory of the execution: how many of them were skipped
};

}  // namespace farandole::trainer
