// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Reduce-scatter and allgather around a ring, each chunk cut into segments that overlap.
/// Rounds: 2(P-1).  Sent per rank: 2N(P-1)/P.  Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  ring_reduce_scatter_phase(schedule, at, segments, 0);
  ring_allgather_phase(schedule, at, segments, at.size - 1);
  return std::move(schedule).build();
}

}  // namespace farandole
