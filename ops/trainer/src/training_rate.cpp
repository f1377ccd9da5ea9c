// SPDX-License-Identifier: Apache-2.0
#include "training_rate.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/internal/log.h"
#include "program_code.h"

namespace farandole::trainer {

TrainingRate::TrainingRate(Communicator& communicator, const TrainerOptions& options, bool has_test,
                           std::int64_t steps_per_epoch, std::int64_t total_steps, std::int64_t last_step)
    : communicator_(communicator),
      options_(options),
      observes_test_(has_test && options.evaluate_every > 0),
      steps_per_epoch_(steps_per_epoch),
      total_steps_(total_steps) {
  const std::int64_t warmup = options.learning_rate.warmup_steps;
  if (communicator.rank() == 0 && warmup > last_step) {
    log(LogLevel::kWarning, fmt::format("the learning rate warms up for {} training steps, but the training ends after "
                                        "{}, so the rate stays below the one that was asked for",
                                        warmup, last_step));
  }
}

double TrainingRate::at(std::int64_t training_step) {
  return options_.learning_rate.schedule == LearningRateSchedule::kOwn ? compare_own(training_step)
                                                                       : compute(training_step);
}

double TrainingRate::compute(std::int64_t training_step) const {
  return learning_rate(options_.learning_rate, communicator_.size(), training_step, steps_per_epoch_, total_steps_,
                       plateau_);
}

double TrainingRate::compare_own(std::int64_t training_step) {
  const double rate = call_program(communicator_, "LearningRateOptions::own", [&] { return compute(training_step); });
  const bool is_valid = rate >= 0 && std::isfinite(rate);
  const auto check = [&] {
    if (is_valid) return;
    throw InvalidArgument(
        fmt::format("LearningRateOptions::own has returned the rate {} for training step {}; it must "
                    "be finite and at least 0",
                    rate, training_step));
  };
  if (!options_.averaging) {  // each replica trains alone
    check();
    return rate;
  }
  // Highest rate, lowest rate (negated), and whether a rank's rate is invalid.
  std::array<double, 3> extremes{is_valid ? rate : 0, is_valid ? -rate : 0, is_valid ? 0.0 : 1.0};
  communicator_.allreduce(extremes, ReduceOp::kMax);
  if (extremes[2] > 0) agree(communicator_, check);
  if (extremes[0] != -extremes[1]) raise_difference(training_step, rate);
  return rate;
}

void TrainingRate::raise_difference(std::int64_t training_step, double mine) {
  std::vector<double> rates(static_cast<std::size_t>(communicator_.size()));
  communicator_.allgather(BufferView(&mine, 1, DType::kF64), rates);
  std::size_t odd = 1;
  while (odd + 1 < rates.size() && rates[odd] == rates[0]) ++odd;
  raise_on_all(ErrorKind::kMismatch,
               fmt::format("LearningRateOptions::own has returned the rate {} on rank 0 and {} on rank {} for training "
                           "step {}; it must return the same on every rank",
                           rates[0], rates[odd], odd, training_step));
}

bool TrainingRate::watches_plateau() const {
  return options_.learning_rate.schedule == LearningRateSchedule::kPlateau;
}

void TrainingRate::end_epoch(double training_loss, const std::optional<Evaluation>& test) {
  if (!watches_plateau() || (observes_test_ && !test)) return;
  observe_loss(options_.learning_rate.plateau, observes_test_ ? test->loss : training_loss, plateau_);
}

void TrainingRate::end_epoch_unevaluated(double training_loss, std::int64_t epoch) {
  if (watches_plateau() && observes_test_ && epoch % options_.evaluate_every == 0) {
    plateau_.pending = true;
  } else {
    end_epoch(training_loss, std::nullopt);
  }
}

void TrainingRate::restore(const std::optional<PlateauState>& state) {
  plateau_ = state.value_or(PlateauState{});
  plateau_.pending = plateau_.pending && watches_plateau() && observes_test_;
}

std::optional<PlateauState> TrainingRate::state() const {
  return watches_plateau() ? std::optional(plateau_) : std::nullopt;
}

}  // namespace farandole::trainer
