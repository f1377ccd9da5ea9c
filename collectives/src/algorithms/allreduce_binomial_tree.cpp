// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Reduces to rank 0 along a binomial tree and broadcasts along the same one; segment by segment, so that the two
/// overlap. Contiguous ranks are combined first: a balanced binary tree where P is a power of two.
/// Rounds: 2⌈log₂P⌉ + segments - 1.  Sent per rank: up to N⌈log₂P⌉ (rank 0), N by half of the ranks.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_tree_allreduce(const Place& at, int segments) {
  const Place from_zero{at.rank, at.size, 0};
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  binomial_reduce_phase(schedule, from_zero, segments, 0);
  binomial_broadcast_phase(schedule, from_zero, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace farandole
