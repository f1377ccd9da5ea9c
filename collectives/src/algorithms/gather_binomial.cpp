// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Chunks climb a binomial tree; each rank forwards its subtree's together.
/// Rounds: ⌈log₂P⌉.  Bytes at the root: N(P-1)/P.  Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_gather(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  binomial_gather_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
