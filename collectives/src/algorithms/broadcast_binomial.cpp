// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// A binomial tree, segment by segment; the largest subtree is served first.
/// Rounds: ⌈log₂P⌉ + segments - 1.  Sent per rank: up to N⌈log₂P⌉ (the root), nothing by half of the ranks.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_broadcast(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  binomial_broadcast_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
