// SPDX-License-Identifier: Apache-2.0
// The mirrored-replica trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/learning_rate.h"
#include "farandole/trainer/model.h"
#include "farandole/trainer/optimizer.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// After each training step, over all replicas.
struct StepReport {
  std::int64_t training_step = 0;  ///< 1 for the first one
  std::int64_t epoch = 0;          ///< 1 for the first one
  std::int64_t step_of_epoch = 0;  ///< 1 for the first one
  std::int64_t steps_per_epoch = 0;
  double loss = 0;            ///< mean over the global batch
  double epoch_loss = 0;      ///< mean over the epoch so far
  double epoch_accuracy = 0;  ///< share of right answers in training, in the epoch so far
  double seconds = 0;         ///< that this training step took on this replica, with its waiting
};

struct Evaluation {
  double loss = 0;      ///< mean
  double accuracy = 0;  ///< share of right answers
};

/// After each epoch, and at the end.
struct EpochReport {
  std::int64_t epoch = 0;                  ///< epochs begun
  std::int64_t training_steps = 0;         ///< since the first epoch
  double loss = 0;                         ///< mean over the epoch's training samples; NaN if there were none
  double accuracy = 0;                     ///< of the same
  std::optional<Evaluation> test;          ///< where it was evaluated
  double images_per_second = 0;            ///< in training, all replicas together
  double seconds = 0;                      ///< of training steps, without evaluation and checkpoints
  double exposed_communication_share = 0;  ///< of those seconds, on this replica
  std::uint32_t parameters_checksum = 0;   ///< CRC-32 of their bytes; without averaging: this replica's
  int replicas = 0;
};

struct CheckpointOptions {
  std::filesystem::path directory;  ///< empty: no checkpoints
  std::int64_t every_epochs = 1;    ///< and at the end
  int keep = 3;
  bool resume = false;  ///< from the newest checkpoint that is whole; there must be one
};

/// More than 15 members: one for each thing that a program may choose, those of a subject in a struct of their own.
struct TrainerOptions {
  std::int64_t global_batch = 128;  ///< samples per training step, all replicas together
  std::int64_t epochs = 5;
  std::int64_t max_steps = 0;  ///< stop after this many training steps in all; 0: at the end of the last epoch
  OptimizerOptions optimizer;
  LearningRateOptions learning_rate;
  double clip_norm = 0;         ///< limit of the gradients' global norm; 0: none
  std::int64_t accumulate = 1;  ///< micro-batches that each replica's part of a batch is computed in
  std::uint64_t seed = 1;
  bool initialize = true;  ///< draw parameters from the seed; false: start with rank 0's as they are
  /// The same bits on 1, 2, 4 and 8 replicas of one type of machine; needs a power of two of replicas.
  bool deterministic = false;
  std::int64_t micro_batches = 8;    ///< of a global batch in deterministic mode; a power of two that replicas divide
  bool synchronized_layers = false;  ///< layers may use Pass::replicas (synchronised batch normalisation)
  bool averaging = true;             ///< false: each replica trains alone, to measure what communication costs
  int kernel_threads = 0;            ///< per replica; 0: 1 in deterministic mode, else allowed cores / local replicas
  std::int64_t evaluate_every = 1;   ///< epochs; 0: only at the end
  std::int64_t evaluation_batch = 250;
  CheckpointOptions checkpoints;
  std::function<void(const StepReport&)> on_step;    ///< called on this replica after each training step
  std::function<void(const EpochReport&)> on_epoch;  ///< … and after each epoch
};

/// Trains one model on all ranks of a communicator: splits each global batch, sums gradients while backward still runs,
/// and applies the same update everywhere. One object per rank, used by one thread; every call is collective and
/// blocks. Every call on one that was moved from throws InvalidArgument. The World must outlive it.
///
/// Errors that all ranks raise together are also RaisedByAll (agreement.h).
template <class Scalar>
class Trainer {
 public:
  /// Compares options, data (by size, shape, classes and checksum), model and precision with all ranks. Only
  /// `kernel_threads`, `on_step` and `on_epoch` may differ. Every rank needs the whole data: the trainer deals each
  /// global batch out to them. Then gives all replicas rank 0's parameters (drawn from the seed, or read from a
  /// checkpoint, which only rank 0 reads and writes). While a call of the trainer runs, OpenMP's number of threads of
  /// the calling thread is `kernel_threads`; afterwards it is what it was.
  /// @param test  may be null
  /// @throws InvalidArgument  another training writes to the checkpoint directory (names its host and process), there
  /// is nothing to resume from, or options do not fit each other, the data or the number of replicas (names valid
  /// choices)
  /// @throws Mismatch         ranks differ in anything of the above; names it, both values and both ranks
  /// @throws Unsupported      synchronised layers in deterministic mode
  /// @throws DataError        no checkpoint is whole, or their directory cannot be used
  Trainer(Communicator communicator, Model<Scalar> model, std::shared_ptr<const Dataset> training,
          std::shared_ptr<const Dataset> test, TrainerOptions options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// Trains until the last epoch or `max_steps`, and returns the report of the end: of all training steps of this call.
  /// @throws DataError  the loss is not a number, or a checkpoint could not be written
  /// @throws InternalError  replicas have different parameters
  EpochReport fit();
  /// Evaluates with moving statistics; each sample once, whatever the number of replicas.
  /// @param dataset  the whole of it, the same on all ranks
  /// @throws Mismatch  the ranks' data differ   @throws InvalidArgument  they do not fit the model
  Evaluation evaluate(const Dataset& dataset);

  Model<Scalar>& model();
  std::int64_t training_steps() const;  ///< done, including those before a resume
  /// On rank 0 the checkpoint that training was resumed from; empty: none.
  std::filesystem::path resumed_from() const;

 private:
  struct State;
  /// @throws InvalidArgument  this trainer was moved from
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
