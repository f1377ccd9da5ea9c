// SPDX-License-Identifier: Apache-2.0
// Sums over training steps, from which the reports are made.
#pragma once

#include <cstdint>
#include <limits>

#include "farandole/internal/deadline.h"

namespace farandole::trainer {

/// Sums over training steps.
struct Totals {
  double loss_sum = 0;
  std::int64_t correct = 0, samples = 0;  // in the epoch, including the part before a resume
  std::int64_t trained = 0;               // number of samples in this call
  Seconds training{0}, exposed{0};        // time in this call

  double loss() const { return per_sample(loss_sum); }
  double accuracy() const { return per_sample(static_cast<double>(correct)); }
  double images_per_second() const {
    return training.count() > 0 ? static_cast<double>(trained) / training.count() : 0;
  }
  double exposed_share() const { return training.count() > 0 ? exposed / training : 0; }

  /// Adds the times and the number of samples of this call.
  void add_time_of(const Totals& other) {
    training += other.training;
    exposed += other.exposed;
    trained += other.trained;
  }
  /// Replaces the sums over the epoch.
  void set_results_of(const Totals& other) {
    loss_sum = other.loss_sum;
    correct = other.correct;
    samples = other.samples;
  }

 private:
  double per_sample(double sum) const {
    return samples > 0 ? sum / static_cast<double>(samples) : std::numeric_limits<double>::quiet_NaN();
  }
};

}  // namespace farandole::trainer
