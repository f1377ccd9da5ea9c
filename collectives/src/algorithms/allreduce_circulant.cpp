// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Reduce-scatter and allgather over a circulant graph: what halving-doubling does, for any size.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: 2N(P-1)/P.  Source: Träff, arXiv 2410.14234, 2024.
Schedule circulant_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  circulant_allgather_phase(schedule, at, segments, ceil_log2(at.size), halving_holdings(at.size));
  return std::move(schedule).build();
}

}  // namespace farandole
