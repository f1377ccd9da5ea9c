// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Reduce-scatter over a circulant graph, then a binomial gather: Rabenseifner's reduce for any size.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to N(P-1)/P + N/2.
/// Source: Rabenseifner, ICCS 2004; Träff, arXiv 2410.14234, 2024.
Schedule reduce_scatter_gather_reduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  binomial_gather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace farandole
