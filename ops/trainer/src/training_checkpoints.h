// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training: rank 0 reads and writes, and all ranks get the result or the error.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "batch_plan.h"
#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"
#include "option_texts.h"

namespace farandole::trainer {

template <class Scalar>
class TrainingCheckpoints {
 public:
  /// All references must outlive this object. @param has_test  the training has a test set
  TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model, Optimizer<Scalar>& optimizer,
                      const TrainerOptions& options, const BatchPlan& plan, bool has_test);

  /// Prepares the directory, resumes if the options ask for that, and copies rank 0's state to all replicas.
  /// Collective; blocks. Returns the position in training; `metrics` and `options` on rank 0 only. @throws
  /// InvalidArgument, DataError  on all ranks
  CheckpointState open();
  /// Returns false without a directory, and if this training step has been saved; the same on all ranks.
  bool is_needed(std::int64_t training_step) const { return store_ && last_saved_ != training_step; }
  /// Writes a checkpoint, which `is_needed`. Collective; blocks. @throws DataError  on all ranks
  void save(CheckpointState state);
  /// Makes the checkpoint of this training step the best one, if it has been saved and the best is kept. Collective;
  /// blocks. @throws DataError  on all ranks
  void mark_best(std::int64_t training_step);
  /// Path of the checkpoint of a training step.
  std::filesystem::path path_of(std::int64_t training_step) const { return store_->path_of(training_step); }
  const std::filesystem::path& resumed_from() const { return resumed_from_; }
  /// The options that the resume has changed; empty on ranks other than 0.
  const std::vector<std::string>& changed_options() const { return changed_options_; }

 private:
  void read(CheckpointState& state);
  /// On a device, copies the values from there to `copies_`, or back; in host memory does nothing.
  void copy_from_device();
  void copy_to_device();
  /// Calls use(vector of the model or the optimizer) for each vector that a checkpoint holds, in a fixed order.
  void for_each_vector(const std::function<void(BufferView)>& use);
  bool is_best(const CheckpointState& state) const {
    return keeps_best_ && state.monitor && state.monitor->best_step == state.training_step;
  }

  Communicator& communicator_;
  Model<Scalar>& model_;
  Optimizer<Scalar>& optimizer_;
  std::optional<CheckpointStore> store_;
  const bool resume_, keeps_best_;
  OptionTexts must_match_, may_change_;
  std::vector<std::string> changed_options_;
  std::vector<Buffer> copies_;                                       // on a device: host memory for each vector
  std::vector<CheckpointTensor> model_tensors_, optimizer_tensors_;  // views in host memory
  std::filesystem::path resumed_from_;
  std::int64_t last_saved_ = -1;  // training step
};

}  // namespace farandole::trainer
