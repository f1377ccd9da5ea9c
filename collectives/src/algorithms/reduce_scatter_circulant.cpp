// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// What a rank still reduces halves every round, rounded up, for any size.
/// Rounds: ⌈log₂P⌉.  Sent per rank: N(P-1)/P.  Source: Träff, arXiv 2410.14234, 2024.
Schedule circulant_reduce_scatter(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
