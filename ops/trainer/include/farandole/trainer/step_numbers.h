// SPDX-License-Identifier: Apache-2.0
// Numbers that change from training step to training step.
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

}  // namespace farandole::trainer
