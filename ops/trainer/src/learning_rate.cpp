// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/learning_rate.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "farandole/core/error.h"

namespace farandole::trainer {

std::string_view name(LearningRateSchedule schedule) {
  switch (schedule) {
    case LearningRateSchedule::kConstant:
      return "constant";
    case LearningRateSchedule::kStep:
      return "step";
    case LearningRateSchedule::kCosine:
      return "cosine";
  }
  throw InternalError("a learning-rate schedule without a name");
}

LearningRateSchedule parse_learning_rate_schedule(std::string_view text) {
  for (const auto schedule :
       {LearningRateSchedule::kConstant, LearningRateSchedule::kStep, LearningRateSchedule::kCosine}) {
    if (text == name(schedule)) return schedule;
  }
  throw InvalidArgument(fmt::format("there is no learning-rate schedule '{}'; choose constant, step or cosine", text));
}

double learning_rate(const LearningRateOptions& options, int replicas, std::int64_t training_step,
                     std::int64_t steps_per_epoch, std::int64_t total_steps) {
  const double base = options.scale_by_replicas ? options.base * replicas : options.base;
  if (training_step < options.warmup_steps) {
    return base * static_cast<double>(training_step + 1) / static_cast<double>(options.warmup_steps);
  }
  switch (options.schedule) {
    case LearningRateSchedule::kConstant:
      return base;
    case LearningRateSchedule::kStep: {
      const std::int64_t drops = training_step / steps_per_epoch / options.step_epochs;
      return base * std::pow(options.step_factor, static_cast<double>(drops));
    }
    case LearningRateSchedule::kCosine: {
      if (training_step >= total_steps) return 0;
      const auto done = static_cast<double>(training_step - options.warmup_steps);
      const auto all = static_cast<double>(total_steps - options.warmup_steps);
      return base * 0.5 * (1 + std::cos(std::numbers::pi * done / all));
    }
  }
  throw InternalError("a learning-rate schedule without a formula");
}

void check(const LearningRateOptions& options) {
  if (!(options.base > 0) || !std::isfinite(options.base)) {
    throw InvalidArgument(fmt::format("a learning rate of {}; it must be greater than 0", options.base));
  }
  if (options.warmup_steps < 0) {
    throw InvalidArgument(fmt::format("{} training steps of warm-up; at least 0", options.warmup_steps));
  }
  if (!(options.step_factor > 0 && options.step_factor <= 1)) {
    throw InvalidArgument(fmt::format("a learning-rate factor of {}; it must be in (0, 1]", options.step_factor));
  }
  if (options.step_epochs < 1) {
    throw InvalidArgument(fmt::format("a drop of the learning rate every {} epochs; at least 1", options.step_epochs));
  }
}

}  // namespace farandole::trainer
