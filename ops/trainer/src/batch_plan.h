// SPDX-License-Identifier: Apache-2.0
// Which samples each rank uses in each training step. Pure: every rank computes the plan of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "farandole/trainer/loader.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Samples of a training step.
struct StepSamples {
  std::int64_t all = 0;  ///< size of the global batch
  Range own;             ///< this rank's samples within the global batch
};

/// The global batch of a training step is the concatenation of the ranks' parts, in the order of the ranks. Each rank
/// cuts its part into the same number of micro-batches in every training step; a micro-batch may be empty.
///
/// Shared data (default): the loader cuts the data set into global batches, and each rank uses its part of each. Own
/// shards: with S training steps in an epoch, each rank uses part s of S of its shard in training step s, so shards of
/// different sizes last equally long.
class BatchPlan {
 public:
  /// @param shards  number of samples of each rank's shard; empty: the ranks share the data
  /// @throws InvalidArgument  as Loader
  BatchPlan(const TrainerOptions& options, const Dataset& training, std::vector<std::int64_t> shards, int rank,
            int replicas);

  bool has_own_shards() const { return !shards_.empty(); }
  int rank() const { return rank_; }
  /// The data of a rank, for messages: "the training data", or "rank 2's own shard".
  std::string data_name(int rank) const;
  std::int64_t steps_per_epoch() const { return loader_.batches_per_epoch(); }
  /// Number of micro-batches of this rank in each training step.
  std::int64_t micro_batches() const { return micro_batches_; }
  StepSamples samples(std::int64_t step_of_epoch) const;
  /// Samples of a micro-batch of this rank, within the global batch.
  Range micro_batch(const StepSamples& samples, std::int64_t index) const;
  /// Smallest number of samples that a rank's micro-batch has.
  std::int64_t smallest_micro_batch() const;
  /// Draws of this rank's data; the order of its samples depends on it, too.
  std::uint64_t seed() const { return seed_; }
  /// A loader for this rank's data. Batch s has the global batch of step s, or with own shards this rank's part of it.
  const Loader& loader() const { return loader_; }
  /// Options on which the order of the samples depends, as text, which must be the same after a resume.
  std::vector<std::pair<std::string, std::string>> options_to_match() const;

 private:
  const std::vector<std::int64_t> shards_;
  const int rank_, replicas_;
  const bool deterministic_, drop_last_;
  const std::int64_t micro_batches_;  // of this rank
  const std::uint64_t seed_;
  const Loader loader_;  // never started: the users start copies
};

/// Sizes of all ranks' shards. Collective; blocks. @param own  size of this rank's
std::vector<std::int64_t> shard_sizes(Communicator& communicator, std::int64_t own);

/// Checks the options of the data. @throws InvalidArgument, Unsupported
void check_data_options(const TrainerOptions& options, const Dataset& training);

}  // namespace farandole::trainer
