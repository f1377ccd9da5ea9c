// SPDX-License-Identifier: Apache-2.0
// How the ranks share an evaluation.
#pragma once

#include <cstdint>

#include "farandole/collectives/communicator.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/loader.h"

namespace farandole::trainer {

/// A rank's part of an evaluation. The batches of all ranks are numbered one behind the other.
struct EvaluationPart {
  Range own = {};                ///< samples of this rank's data
  std::int64_t samples = 0;      ///< of all ranks
  std::int64_t batches = 0;      ///< of all ranks
  std::int64_t first_batch = 0;  ///< number of this rank's first batch
  std::int64_t batch_size = 1;

  /// Number of the batch that starts at sample `first` of this rank's data.
  std::int64_t batch_at(std::int64_t first) const { return first_batch + (first - own.first) / batch_size; }
};

/// Returns this rank's part: with shared data some adjacent batches, with own shards all its data. Collective with own
/// shards; blocks. @param batch  samples per batch
EvaluationPart part_to_evaluate(Communicator& communicator, const Dataset& data, std::int64_t batch, bool own_shards);

}  // namespace farandole::trainer
