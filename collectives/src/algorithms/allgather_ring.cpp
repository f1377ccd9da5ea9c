// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Each chunk goes once round the ring.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule ring_allgather(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  ring_allgather_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
