// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Each chunk goes once round the ring, gathering contributions, and ends on its rank.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_reduce_scatter(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  ring_reduce_scatter_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
