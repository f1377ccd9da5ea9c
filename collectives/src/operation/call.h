// SPDX-License-Identifier: Apache-2.0
// What a caller asked for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/core/buffer.h"
#include "operation/group.h"

namespace farandole {

struct Call {
  Collective collective = Collective::kBarrier;
  ConstBufferView input;
  BufferView output;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  std::vector<std::size_t> counts;       ///< elements per rank; of alltoall: to each rank
  std::vector<std::size_t> recv_counts;  ///< of alltoall: from each rank
  bool uneven = false;                   ///< the caller passed counts
  double prescale = 1.0, postscale = 1.0;
  std::string algorithm;
  int segments = 0;
};

/// Elements of the whole vector that the ranks hold together: what selection and descriptors count.
std::size_t total_count(const Call& call);
/// @throws InvalidArgument  the call can not work, whatever the other ranks do
void validate(const Call& call, const Group& group);
/// What results are multiplied by: the caller's factor, and for averages one over the number of ranks.
double final_scale(const Call& call, int size);

}  // namespace farandole
