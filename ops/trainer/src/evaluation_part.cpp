// SPDX-License-Identifier: Apache-2.0
#include "evaluation_part.h"

#include <algorithm>
#include <vector>

#include "batch_plan.h"

namespace farandole::trainer {
namespace {

std::int64_t batches_of(std::int64_t samples, std::int64_t batch) {
  return (samples + batch - 1) / batch;
}

}  // namespace

EvaluationPart part_to_evaluate(Communicator& communicator, const Dataset& data, std::int64_t batch, bool own_shards) {
  EvaluationPart part{.samples = data.size(), .batches = batches_of(data.size(), batch), .batch_size = batch};
  if (!own_shards) {
    const Range own = part_of(part.batches, communicator.size(), communicator.rank());
    const std::int64_t end = std::min(data.size(), (own.first + own.count) * batch);
    part.first_batch = own.first;
    part.own = {own.first * batch, std::max<std::int64_t>(end - own.first * batch, 0)};
    return part;
  }
  const std::vector<std::int64_t> sizes = shard_sizes(communicator, data.size());
  part.own = {0, data.size()};
  part.samples = part.batches = 0;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::int64_t size = sizes[static_cast<std::size_t>(rank)];
    if (rank == communicator.rank()) part.first_batch = part.batches;
    part.samples += size;
    part.batches += batches_of(size, batch);
  }
  return part;
}

}  // namespace farandole::trainer
