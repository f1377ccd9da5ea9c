// SPDX-License-Identifier: Apache-2.0
#include "training_monitor.h"

#include <cmath>

namespace farandole::trainer {
namespace {

/// The value of a report with this name. @param results  an EpochReport or an Evaluation
template <class Results>
double value_of(const Results& results, const std::string& name) {
  return name == "loss" ? results.loss : results.metric(name);
}

}  // namespace

TrainingMonitor::TrainingMonitor(const TrainerOptions& options, bool has_test)
    : options_(options.monitor),
      active_(options.monitor.patience > 0 || options.checkpoints.keep_best),
      observes_test_(has_test && options.evaluate_every > 0),
      evaluate_every_(options.evaluate_every) {}

bool TrainingMonitor::end_epoch(const EpochReport& report) {
  if (!active_ || (observes_test_ && !report.test)) return false;
  const double result = observes_test_ ? value_of(*report.test, options_.value) : value_of(report, options_.value);
  state_.pending = false;
  return observe(result, report.training_steps);
}

bool TrainingMonitor::end_epoch_unevaluated(const EpochReport& report, std::int64_t epoch) {
  if (!active_ || !observes_test_) return end_epoch(report);
  if (epoch % evaluate_every_ == 0) state_.pending = true;
  return false;
}

bool TrainingMonitor::observe(double result, std::int64_t training_step) {
  const double gain = options_.higher_is_better ? result - state_.best : state_.best - result;
  const bool better = !std::isnan(result) && (state_.best_step < 0 || gain > options_.min_delta);
  if (better) {
    state_ = {.best = result, .best_step = training_step};
  } else {
    ++state_.bad_results;
  }
  return better;
}

bool TrainingMonitor::is_exhausted() const {
  return options_.patience > 0 && state_.bad_results >= options_.patience;
}

std::optional<MonitorState> TrainingMonitor::state() const {
  return active_ ? std::optional(state_) : std::nullopt;
}

void TrainingMonitor::restore(const std::optional<MonitorState>& state) {
  state_ = active_ ? state.value_or(MonitorState{}) : MonitorState{};
  state_.pending = state_.pending && observes_test_;
}

}  // namespace farandole::trainer
