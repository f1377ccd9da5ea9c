// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training: rank 0 reads and writes, and all ranks get the result or the error.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "batch_plan.h"
#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

template <class Scalar>
class TrainingCheckpoints {
 public:
  /// All references must outlive this object.
  TrainingCheckpoints(Communicator& communicator, Model<Scalar>& model, Optimizer<Scalar>& optimizer,
                      const TrainerOptions& options, const BatchPlan& plan);

  /// Prepares the directory, resumes if the options ask for that, and copies rank 0's state to all replicas.
  /// Collective; blocks. Returns the position in training. @throws InvalidArgument, DataError  on all ranks
  CheckpointState open();
  /// Writes a checkpoint. No-op without a directory, and if this training step has been saved. Collective; blocks.
  /// @throws DataError  on all ranks
  void save(CheckpointState state);
  const std::filesystem::path& resumed_from() const { return resumed_from_; }

 private:
  void read(CheckpointState& state);

  Communicator& communicator_;
  Model<Scalar>& model_;
  Optimizer<Scalar>& optimizer_;
  std::optional<CheckpointStore> store_;
  const bool resume_;
  std::vector<std::pair<std::string, std::string>> must_match_;
  std::vector<CheckpointTensor> model_tensors_, optimizer_tensors_;
  std::filesystem::path resumed_from_;
  std::int64_t last_saved_ = -1;  // training step
};

}  // namespace farandole::trainer
