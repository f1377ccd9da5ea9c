// SPDX-License-Identifier: Apache-2.0
// Watches the results of epochs: which epoch was the best, and whether the training still gets better.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Compares the result of each epoch with the best one. All ranks know the same results, so their states stay the same.
class TrainingMonitor {
 public:
  /// @param has_test  the training has a test set
  TrainingMonitor(const TrainerOptions& options, bool has_test);

  /// Passes the report of an epoch that has ended. Returns true if the epoch is better than all before.
  bool end_epoch(const EpochReport& report);
  /// Like `end_epoch`, for a training that stops before the evaluation at the epoch's end: `needs_test_result` is true
  /// until `end_epoch` has got that result, also after a resume. @param epoch  1-based
  bool end_epoch_unevaluated(const EpochReport& report, std::int64_t epoch);
  bool needs_test_result() const { return state_.pending; }
  /// The monitor's patience has ended.
  bool is_exhausted() const;
  /// Returns true if the best epoch so far has ended with this training step.
  bool is_best(std::int64_t training_step) const { return state_.best_step == training_step; }

  /// State for a checkpoint; empty if nothing uses the monitor.
  std::optional<MonitorState> state() const;
  /// @param state  empty: the checkpoint has none, so the monitor begins anew
  void restore(const std::optional<MonitorState>& state);

 private:
  bool observe(double result, std::int64_t training_step);

  const MonitorOptions options_;
  const bool active_;         // early stopping or the best checkpoint needs the monitor
  const bool observes_test_;  // else the results of the training
  const std::int64_t evaluate_every_;
  MonitorState state_;
};

}  // namespace farandole::trainer
