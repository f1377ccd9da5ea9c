// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// A binomial tree, segment by segment. Ranks are counted from the root on, so the association depends on the root.
/// Rounds: ⌈log₂P⌉ + segments - 1.  Sent per rank: N, nothing by the root.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_reduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  binomial_reduce_phase(schedule, at, segments, 0);
  return std::move(schedule).build();
}

}  // namespace farandole
