// SPDX-License-Identifier: Apache-2.0
#include "device_timer.h"

#include <algorithm>

#include "kernels/transfer.h"

namespace farandole::trainer {
namespace {

double at(const DevicePhaseSeconds& step, DevicePhase phase) {
  return step[static_cast<std::size_t>(phase)];
}

bool is_of_graphs(const DevicePhaseSeconds& step) {
  return at(step, DevicePhase::kForward) == 0;
}

double median(const std::vector<DevicePhaseSeconds>& steps, DevicePhase phase) {
  if (steps.empty()) return 0;
  std::vector<double> values;
  for (const DevicePhaseSeconds& step : steps) values.push_back(at(step, phase));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void DeviceTimeSamples::add(const DevicePhaseSeconds& step) {
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.push_back(step);
}

void DeviceTimeSamples::add(const DeviceTimeSamples& others) {
  for (const DevicePhaseSeconds& step : others.steps_) add(step);
}

std::optional<DeviceTimes> DeviceTimeSamples::medians() const {
  if (steps_.empty()) return std::nullopt;
  std::vector<DevicePhaseSeconds> enqueued, launched;
  for (const DevicePhaseSeconds& step : steps_) (is_of_graphs(step) ? launched : enqueued).push_back(step);
  return DeviceTimes{.steps = static_cast<std::int64_t>(enqueued.size()),
                     .input = median(enqueued, DevicePhase::kInput),
                     .forward = median(enqueued, DevicePhase::kForward),
                     .backward = median(enqueued, DevicePhase::kBackward),
                     .exposed_communication = median(enqueued, DevicePhase::kCommunication),
                     .update = median(enqueued, DevicePhase::kUpdate),
                     .graph_steps = static_cast<std::int64_t>(launched.size()),
                     .graph_input = median(launched, DevicePhase::kInput),
                     .graph_gradients = median(launched, DevicePhase::kGraph),
                     .graph_update = median(launched, DevicePhase::kUpdate)};
}

void DeviceTimer::begin_step() {
  if (!is_on_) return;
  current_ = (current_ + 1) % steps_.size();
  steps_[current_].used = 0;
  steps_[current_].is_whole = false;
}

void DeviceTimer::start() {
  if (is_on_) record(std::nullopt);
}

void DeviceTimer::end(DevicePhase phase) {
  if (is_on_) record(phase);
}

void DeviceTimer::end_step() {
  // A replica without samples computes nothing, and says nothing of its device.
  Step& step = steps_[current_];
  step.is_whole = std::ranges::any_of(step.marks.begin(), step.marks.begin() + static_cast<std::ptrdiff_t>(step.used),
                                      [](const Mark& mark) { return mark.phase == DevicePhase::kInput; });
}

void DeviceTimer::record(std::optional<DevicePhase> phase) {
  Device& device = device_of(execution_);
  Step& step = steps_[current_];
  if (step.used == step.marks.size()) {
    step.marks.push_back({device.make_event(DeviceEvent::Use::kTiming), std::nullopt});
  }
  Mark& mark = step.marks[step.used++];
  mark.phase = phase;
  device.record(*mark.event, execution_.stream());
}

void DeviceTimer::collect(DeviceTimeSamples& samples) {
  for (const std::size_t index : {(current_ + 1) % steps_.size(), current_}) {
    Step& step = steps_[index];
    if (!step.is_whole || !step.marks[step.used - 1].event->is_complete()) continue;
    samples.add(seconds_of(step));
    step.is_whole = false;
  }
}

DevicePhaseSeconds DeviceTimer::seconds_of(const Step& step) const {
  Device& device = device_of(execution_);
  DevicePhaseSeconds seconds{};
  for (std::size_t i = 1; i < step.used; ++i) {
    const Mark &before = step.marks[i - 1], &mark = step.marks[i];
    if (!mark.phase) continue;
    seconds[static_cast<std::size_t>(*mark.phase)] += device.elapsed(*before.event, *mark.event).count();
  }
  return seconds;
}

}  // namespace farandole::trainer
