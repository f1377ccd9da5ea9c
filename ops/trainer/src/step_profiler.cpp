// SPDX-License-Identifier: Apache-2.0
#include "step_profiler.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace farandole::trainer {
namespace {

/// The median of value(step) over the training steps; of an even number the upper one.
template <class Steps, class Value>
double median_of(const Steps& steps, const Value& value) {
  std::vector<double> values;
  values.reserve(steps.size());
  for (const auto& step : steps) values.push_back(value(step));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double StepProfiler::Step::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void StepProfiler::restart() {
  steps_.clear();
  warm_up_ = kWarmUp;
}

void StepProfiler::begin_step() {
  std::fill(current_.begin(), current_.end(), 0.0);
  running_ = slot(StepPart::kRest);
  since_ = now_();
}

void StepProfiler::end_step(std::int64_t samples) {
  start(slot(StepPart::kRest));
  if (warm_up_ > 0) {
    --warm_up_;
    return;
  }
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.push_back({samples, current_});
}

std::size_t StepProfiler::start(std::size_t slot) {
  const Clock::time_point now = now_();
  current_[running_] += Seconds(now - since_).count();
  since_ = now;
  return std::exchange(running_, slot);
}

TrainingProfile StepProfiler::report(const std::vector<LayerWork>& layers) const {
  const auto of_slot = [&](std::size_t slot) {
    return median_of(steps_, [&](const Step& step) { return step.seconds[slot]; });
  };
  TrainingProfile profile;
  profile.steps = steps();
  const std::int64_t samples = std::accumulate(steps_.begin(), steps_.end(), std::int64_t{0},
                                               [](std::int64_t sum, const Step& step) { return sum + step.samples; });
  profile.samples = static_cast<double>(samples) / static_cast<double>(steps());
  for (std::size_t row = 0; row < layers.size(); ++row) {
    profile.layers.push_back(
        {layers[row], of_slot(slot(row, Direction::kForward)), of_slot(slot(row, Direction::kBackward))});
  }
  profile.parts = {.loss = of_slot(slot(StepPart::kLoss)),
                   .averaging = of_slot(slot(StepPart::kAveraging)),
                   .update = of_slot(slot(StepPart::kUpdate)),
                   .input = of_slot(slot(StepPart::kInput)),
                   .rest = of_slot(slot(StepPart::kRest))};
  profile.step = median_of(steps_, [](const Step& step) { return step.total(); });
  profile.busy_seconds =
      median_of(steps_, [](const Step& step) { return step.total() - step.seconds[slot(StepPart::kAveraging)]; });
  return profile;
}

}  // namespace farandole::trainer
