// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// What a rank holds doubles every round. Chunks keep their places, so nothing is rotated at the end; a range that
/// wraps round the last chunk is two messages. Rounds: ⌈log₂P⌉.  Sent per rank: N(P-1)/P.  Source: Bruck et al., IEEE
/// TPDS 8(11), 1997.
Schedule bruck_allgather(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_allgather_phase(schedule, at, segments, 0, doubling_holdings(at.size));
  return std::move(schedule).build();
}

}  // namespace farandole
