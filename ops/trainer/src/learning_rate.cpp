// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

using Schedule = LearningRateSchedule;

constexpr std::array kBuiltInSchedules{Schedule::kConstant,   Schedule::kStep,     Schedule::kCosine,
                                       Schedule::kPolynomial, Schedule::kOneCycle, Schedule::kPlateau};

/// Position of a training step in a schedule that ends with the training.
struct Position {
  std::int64_t done, all;  // training steps since the warm-up, and after the warm-up in all

  bool is_after_end() const { return done >= all; }
  double share() const { return static_cast<double>(done) / static_cast<double>(all); }
};

/// The rate at `share` of the way from `from` to `to`, on half a cosine.
double anneal(double from, double to, double share) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double cosine(const LearningRateOptions& options, double base, Position position) {
  if (position.is_after_end()) return options.minimum;
  return anneal(base, options.minimum, position.share());
}

double polynomial(const LearningRateOptions& options, double base, Position position) {
  if (position.is_after_end()) return options.minimum;
  return options.minimum + (base - options.minimum) * std::pow(1 - position.share(), options.power);
}

double one_cycle(const OneCycleOptions& options, double base, Position position) {
  const double first = base / options.div_factor, last = first / options.final_div_factor;
  const double peak = options.pct_start * static_cast<double>(position.all) - 1;
  const auto end = static_cast<double>(position.all) - 1, now = static_cast<double>(position.done);
  if (now >= end) return last;
  if (now >= peak) return anneal(base, last, (now - peak) / (end - peak));
  return anneal(first, base, now / peak);
}

void check_number(const char* what, double value, bool valid, const char* range) {
  if (valid && std::isfinite(value)) return;
  throw InvalidArgument(fmt::format("{} of {}; it must be {}", what, value, range));
}

void check(const OneCycleOptions& options) {
  check_number("a rising part of the one-cycle schedule", options.pct_start,
               options.pct_start >= 0 && options.pct_start < 1, "in [0, 1)");
  check_number("a div_factor of the one-cycle schedule", options.div_factor, options.div_factor >= 1, "at least 1");
  check_number("a final_div_factor of the one-cycle schedule", options.final_div_factor, options.final_div_factor >= 1,
               "at least 1");
}

void check(const PlateauOptions& options) {
  check_number("a factor of the plateau schedule", options.factor, options.factor > 0 && options.factor < 1,
               "in (0, 1)");
  check_number("a threshold of the plateau schedule", options.threshold,
               options.threshold >= 0 && options.threshold < 1, "in [0, 1)");
  if (options.patience < 0) {
    throw InvalidArgument(
        fmt::format("a patience of {} losses of the plateau schedule; it must be at least 0", options.patience));
  }
}

void check_minimum(const LearningRateOptions& options) {
  check_number("a minimum of the learning rate", options.minimum, options.minimum >= 0, "at least 0");
  if (options.minimum == 0) return;
  if (options.schedule != Schedule::kCosine && options.schedule != Schedule::kPolynomial &&
      options.schedule != Schedule::kPlateau) {
    throw InvalidArgument(
        fmt::format("a minimum of the learning rate has no effect with the schedule {}; it needs cosine, polynomial or "
                    "plateau",
                    name(options.schedule)));
  }
  if (options.minimum > options.base) {
    throw InvalidArgument(fmt::format("a minimum of the learning rate of {}; it must be at most the learning rate, {}",
                                      options.minimum, options.base));
  }
}

}  // namespace

std::string_view name(LearningRateSchedule schedule) {
  switch (schedule) {
    case Schedule::kConstant:
      return "constant";
    case Schedule::kStep:
      return "step";
    case Schedule::kCosine:
      return "cosine";
    case Schedule::kPolynomial:
      return "polynomial";
    case Schedule::kOneCycle:
      return "one-cycle";
    case Schedule::kPlateau:
      return "plateau";
    case Schedule::kOwn:
      return "own";
  }
  throw InternalError("a learning-rate schedule without a name");
}

LearningRateSchedule parse_learning_rate_schedule(std::string_view text) {
  for (const Schedule schedule : kBuiltInSchedules) {
    if (text == name(schedule)) return schedule;
  }
  throw InvalidArgument(fmt::format(
      "there is no learning-rate schedule '{}'; choose constant, step, cosine, polynomial, one-cycle or plateau",
      text));
}

void observe_loss(const PlateauOptions& options, double loss, PlateauState& state) {
  state.pending = false;
  if (loss < state.best * (1 - options.threshold)) {
    state.best = loss;
    state.bad_losses = 0;
  } else if (++state.bad_losses > options.patience) {
    state.factor *= options.factor;
    state.bad_losses = 0;
  }
}

double learning_rate(const LearningRateOptions& options, int replicas, std::int64_t training_step,
                     std::int64_t steps_per_epoch, std::int64_t total_steps, const PlateauState& plateau) {
  const double scale = options.scale_by_replicas ? replicas : 1;
  const double base = options.base * scale;
  const bool warms_up = training_step < options.warmup_steps;
  // During the warm-up a schedule stays at its first rate.
  const Position position{std::max<std::int64_t>(training_step - options.warmup_steps, 0),
                          total_steps - options.warmup_steps};
  const auto warmed_up = [&](double rate) {
    if (!warms_up) return rate;
    return rate * static_cast<double>(training_step + 1) / static_cast<double>(options.warmup_steps);
  };
  switch (options.schedule) {
    case Schedule::kConstant:
      return warmed_up(base);
    case Schedule::kStep: {
      if (warms_up) return warmed_up(base);
      const std::int64_t drops = training_step / steps_per_epoch / options.step_epochs;
      return base * std::pow(options.step_factor, static_cast<double>(drops));
    }
    case Schedule::kCosine:
      return warms_up ? warmed_up(base) : cosine(options, base, position);
    case Schedule::kPolynomial:
      return warms_up ? warmed_up(base) : polynomial(options, base, position);
    case Schedule::kOneCycle:
      return warms_up ? warmed_up(base / options.one_cycle.div_factor) : one_cycle(options.one_cycle, base, position);
    case Schedule::kPlateau:
      return warmed_up(std::max(base * plateau.factor, options.minimum));
    case Schedule::kOwn:
      return warmed_up(options.own(training_step, steps_per_epoch, total_steps) * scale);
  }
  throw InternalError("a learning-rate schedule without a formula");
}

void check(const LearningRateOptions& options) {
  check_number("a learning rate", options.base, options.base > 0, "greater than 0");
  if (options.warmup_steps < 0) {
    throw InvalidArgument(fmt::format("{} training steps of warm-up; at least 0", options.warmup_steps));
  }
  check_number("a learning-rate factor", options.step_factor, options.step_factor > 0 && options.step_factor <= 1,
               "in (0, 1]");
  if (options.step_epochs < 1) {
    throw InvalidArgument(fmt::format("a drop of the learning rate every {} epochs; at least 1", options.step_epochs));
  }
  check_minimum(options);
  check_number("a power of the polynomial schedule", options.power, options.power > 0, "greater than 0");
  check(options.one_cycle);
  check(options.plateau);
  if (options.schedule == Schedule::kOwn && !options.own) {
    throw InvalidArgument("the schedule own needs a function: LearningRateOptions::own is empty");
  }
  if (options.schedule != Schedule::kOwn && options.own) {
    throw InvalidArgument(
        fmt::format("LearningRateOptions::own has no effect with the schedule {}; choose LearningRateSchedule::kOwn",
                    name(options.schedule)));
  }
}

}  // namespace farandole::trainer
