// SPDX-License-Identifier: Apache-2.0
// Sums over training steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "device_timer.h"
#include "farandole/internal/deadline.h"
#include "training_step.h"

namespace farandole::trainer {

struct EpochTotals {
  // In the epoch, including the part before a resume.
  double loss_sum = 0;
  std::vector<double> metrics;  // of all metrics; empty before the first training step
  std::int64_t samples = 0;
  std::int64_t uncounted = 0;  // of them in skipped training steps whose loss is no number: not in loss and metrics
  // In this call.
  std::int64_t trained = 0;  // number of samples
  Seconds training{0}, exposed{0}, input_waiting{0};
  DeviceTimeSamples device_times;

  void add(const StepResult& result) {
    samples += result.samples;
    metrics.resize(result.metrics.size());
    if (!std::isfinite(result.loss_sum)) {
      uncounted += result.samples;
      return;
    }
    loss_sum += result.loss_sum;
    for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i] += result.metrics[i];
  }
  /// Mean loss of a sample; NaN if there were none.
  double loss() const {
    const std::int64_t counted = samples - uncounted;
    return counted > 0 ? loss_sum / static_cast<double>(counted) : std::numeric_limits<double>::quiet_NaN();
  }
  double images_per_second() const {
    return training.count() > 0 ? static_cast<double>(trained) / training.count() : 0;
  }
  double exposed_share() const { return training.count() > 0 ? exposed / training : 0; }

  double input_waiting_share() const { return training.count() > 0 ? input_waiting / training : 0; }

  /// Begins a call: the sums over the epoch stay.
  void restart_times() {
    trained = 0;
    training = exposed = input_waiting = Seconds{0};
    device_times.clear();
  }
  /// Adds the times and the number of samples of this call.
  void add_time_of(const EpochTotals& other) {
    training += other.training;
    exposed += other.exposed;
    input_waiting += other.input_waiting;
    device_times.add(other.device_times);
    trained += other.trained;
  }
  /// Replaces the sums over the epoch.
  void set_results_of(const EpochTotals& other) {
    loss_sum = other.loss_sum;
    metrics = other.metrics;
    samples = other.samples;
    uncounted = other.uncounted;
  }
};

}  // namespace farandole::trainer
