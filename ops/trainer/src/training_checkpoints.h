// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training: rank 0 reads and writes, and all ranks get the result or the error. A checkpoint is
// written on a thread while training goes on, from copies of the values.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "background_task.h"
#include "batch_plan.h"
#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"
#include "option_texts.h"
#include "value_copies.h"

namespace farandole::trainer {

template <class Scalar>
class TrainingCheckpoints {
 public:
  /// All references must outlive this object. @param has_test  the training has a test set
  TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model, Optimizer<Scalar>& optimizer,
                      const TrainerOptions& options, const BatchPlan& plan, bool has_test);
  /// Waits until a pending checkpoint is whole. Logs a warning if it could not be written.
  ~TrainingCheckpoints();
  TrainingCheckpoints(const TrainingCheckpoints&) = delete;
  TrainingCheckpoints& operator=(const TrainingCheckpoints&) = delete;

  /// Prepares the directory, resumes if the options ask for that, and copies rank 0's state to all replicas.
  /// Collective; blocks. Returns the position in training; `metrics` and `options` on rank 0 only. @throws
  /// InvalidArgument, DataError  on all ranks
  CheckpointState open();
  /// Returns false without a directory, and if this training step has been saved, or is being saved; the same on all
  /// ranks.
  bool is_needed(std::int64_t training_step) const { return store_ && last_saved_ != training_step; }
  /// Begins a checkpoint, which `is_needed`: takes copies of the values, and writes them while the caller goes on. On a
  /// device the copies are enqueued. Collective; blocks until rank 0 has started. @pre  none is pending
  /// @throws DeviceError  on all ranks
  void begin(CheckpointState state);
  /// True from `begin` to `finish_pending`; the same on all ranks.
  bool is_pending() const { return is_pending_; }
  /// True if rank 0 need not wait in `finish_pending`. Rank 0 only. Non-blocking.
  bool has_ended() const { return is_pending_ && writer_.has_ended(); }
  /// Waits until the pending checkpoint is whole. Collective; blocks. @throws DataError  on all ranks: it could not be
  /// written, and is needed again
  void finish_pending();
  /// Makes the checkpoint of this training step the best one, if it has been saved and the best is kept. Collective;
  /// blocks. @pre  none is pending   @throws DataError  on all ranks
  void mark_best(std::int64_t training_step);
  /// Path of the checkpoint of a training step.
  std::filesystem::path path_of(std::int64_t training_step) const { return store_->path_of(training_step); }
  const std::filesystem::path& resumed_from() const { return resumed_.from; }
  /// The options that the resume has changed; empty on ranks other than 0.
  const std::vector<std::string>& changed_options() const { return resumed_.changed_options; }

 private:
  void read(CheckpointState& state);
  /// The vectors of the model and the optimizer that a checkpoint holds.
  std::vector<BufferView> vectors();
  /// Writes `values_`. On the writer's thread, which owns `values_` and the files of `store_` from `begin` to
  /// `finish_pending`.
  void write(const CheckpointState& state);
  /// On the writer's thread. @throws DataError  a copy of a parameter is not finite
  void check_finite(std::int64_t training_step) const;
  bool is_best(const CheckpointState& state) const {
    return keeps_best_ && state.monitor && state.monitor->best_step == state.training_step;
  }

  Communicator& communicator_;
  Model<Scalar>& model_;
  Optimizer<Scalar>& optimizer_;
  std::optional<CheckpointStore> store_;
  const bool resumes_, needs_one_, keeps_best_;  // needs_one_: a checkpoint to resume from
  OptionTexts must_match_, may_change_;
  /// The values that a checkpoint holds.
  struct Values {
    Values(const Execution& execution, std::vector<BufferView> vectors) : copies(execution, std::move(vectors)) {}
    ValueCopies copies;
    std::vector<CheckpointTensor> of_model, of_optimizer;  // views in `copies`
  };
  std::optional<Values> values_;  // rank 0 with a directory
  struct Resumed {
    std::filesystem::path from;
    std::vector<std::string> changed_options;
  };
  Resumed resumed_;
  std::int64_t last_saved_ = -1;  // training step, whose checkpoint may be pending
  bool is_pending_ = false;
  std::int64_t written_ = -1;  // training step of the last checkpoint that is whole; the writer's
  BackgroundTask writer_;      // rank 0's; last, so that its thread ends first
};

}  // namespace farandole::trainer
