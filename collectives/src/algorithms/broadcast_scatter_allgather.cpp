// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Binomial scatter, then an allgather over a circulant graph, which takes what each rank holds as one chunk although
/// inner ranks of the tree hold more.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: up to 2N(P-1)/P.  Source: van de Geijn's scatter-allgather as in Thakur,
/// Rabenseifner & Gropp, IJHPCA 19(1), 2005, with the allgather of Träff, arXiv 2410.14234, 2024.
Schedule scatter_allgather_broadcast(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  binomial_scatter_phase(schedule, at, segments, 0);
  circulant_allgather_phase(schedule, at, segments, ceil_log2(at.size), halving_holdings(at.size));
  return std::move(schedule).build();
}

}  // namespace farandole
