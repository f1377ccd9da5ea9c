// SPDX-License-Identifier: Apache-2.0
// When a training writes a checkpoint.
#pragma once

#include <cstdint>

#include "farandole/internal/deadline.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Says when a checkpoint is due. The epochs and steps are the same on all ranks; the time is rank 0's, which asks for
/// a checkpoint by a vote that travels with the loss (StepVotes).
class CheckpointSchedule {
 public:
  explicit CheckpointSchedule(const CheckpointOptions& options, Clock::time_point now = Clock::now())
      : options_(options), last_(now) {}

  bool is_due_after_step(std::int64_t training_step) const {
    return options_.every_steps > 0 && training_step % options_.every_steps == 0;
  }
  bool is_due_after_epoch(std::int64_t epoch) const {
    return options_.every_epochs > 0 && epoch % options_.every_epochs == 0;
  }
  bool time_has_passed(Clock::time_point now = Clock::now()) const {
    return options_.every_minutes > 0 && Seconds(now - last_).count() >= 60 * options_.every_minutes;
  }
  /// A checkpoint was written: the time starts again.
  void written(Clock::time_point now = Clock::now()) { last_ = now; }

 private:
  const CheckpointOptions options_;
  Clock::time_point last_;
};

}  // namespace farandole::trainer
