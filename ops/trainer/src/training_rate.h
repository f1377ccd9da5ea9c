// SPDX-License-Identifier: Apache-2.0
// The learning rate of a training.
#pragma once

#include <cstdint>
#include <optional>

#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Computes the rate of each training step, keeps the state of the schedule kPlateau, and compares the rates of a
/// schedule of the program's own across ranks.
///
/// kPlateau observes the test loss if `fit` evaluates a test set between epochs, else the training loss of each epoch.
/// All ranks know the same losses, so their states stay the same.
class TrainingRate {
 public:
  /// Logs a warning on rank 0 if the training ends before the warm-up. All references must outlive this object.
  /// @param total_steps  of all epochs   @param last_step  training step after which the training ends
  TrainingRate(Communicator& communicator, const TrainerOptions& options, bool has_test, std::int64_t steps_per_epoch,
               std::int64_t total_steps, std::int64_t last_step);

  /// Returns the rate of a training step (0-based). Collective for an own schedule.
  /// @throws Mismatch  the rates of an own schedule differ   @throws InvalidArgument  an own schedule has returned
  /// a rate that is not finite or negative; both on all ranks   @throws  what an own schedule threw, on its rank; the
  /// job is aborted
  double at(std::int64_t training_step);

  /// Passes the losses of an epoch that has ended. @param test  empty: not evaluated in this epoch
  void end_epoch(double training_loss, const std::optional<Evaluation>& test);
  /// Like `end_epoch`, for a training that stops before the evaluation at the epoch's end: `needs_test_loss` is true
  /// until `end_epoch` has got the test loss, also after a resume.
  void end_epoch_unevaluated(double training_loss, std::int64_t epoch);
  bool needs_test_loss() const { return plateau_.pending; }

  /// State for a checkpoint; empty for schedules without a state.
  std::optional<PlateauState> state() const;
  /// @param state  empty: the checkpoint has none, so the schedule begins anew
  void restore(const std::optional<PlateauState>& state);

 private:
  bool watches_plateau() const;
  double compute(std::int64_t training_step) const;
  double compare_own(std::int64_t training_step);
  [[noreturn]] void raise_difference(std::int64_t training_step, double mine);

  Communicator& communicator_;
  const TrainerOptions& options_;
  const bool observes_test_;
  const std::int64_t steps_per_epoch_, total_steps_;
  PlateauState plateau_;
};

}  // namespace farandole::trainer
