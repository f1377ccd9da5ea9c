// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

enum class LearningRateSchedule { kConstant, kStep, kCosine };
/// The schedule's name: "constant", "step", "cosine".
std::string_view name(LearningRateSchedule schedule);
/// Parses the name of a schedule. @throws InvalidArgument  the name is unknown; lists the valid names
LearningRateSchedule parse_learning_rate_schedule(std::string_view text);

struct LearningRateOptions {
  double base = 0.05;
  LearningRateSchedule schedule = LearningRateSchedule::kConstant;
  std::int64_t warmup_steps = 0;   ///< training steps in which the rate rises linearly to `base`
  double step_factor = 0.1;        ///< kStep: factor by which the rate changes after every `step_epochs` epochs
  std::int64_t step_epochs = 10;   ///< kStep: number of epochs between changes of the rate
  bool scale_by_replicas = false;  ///< multiply `base` by the number of replicas (Goyal et al., 2017)
};

/// The rate of a training step (0-based). After the warm-up, kConstant stays at `base`; kStep gives base *
/// step_factor^(epoch / step_epochs), with integer division; kCosine follows half a cosine from `base` to 0 at
/// `total_steps`.
/// @param replicas  number of replicas in sync
double learning_rate(const LearningRateOptions& options, int replicas, std::int64_t training_step,
                     std::int64_t steps_per_epoch, std::int64_t total_steps);

/// @throws InvalidArgument  an option is out of range
void check(const LearningRateOptions& options);

}  // namespace trainer
}  // namespace FARANDOLE_API
