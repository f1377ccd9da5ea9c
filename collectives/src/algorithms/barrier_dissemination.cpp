// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// In round k every rank tells the one 2^k places on whom it has heard of. The token is combined into itself, so
/// hearing of a rank twice does no harm. Rounds: ⌈log₂P⌉.  Sent per rank: one token a round.  Source: Hensgen, Finkel &
/// Manber, IJPP 17(1), 1988.
Schedule dissemination_barrier(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  for (int round = 0; round < ceil_log2(at.size); ++round) {
    const Piece token{0, 0};
    const int slot = round % 2;
    schedule.round(round);
    schedule.send(at.at(1 << round), token, segments);
    schedule.recv_scratch(at.at(-(1 << round)), slot, token, segments);
    schedule.reduce_scratch(slot, token, segments);
  }
  return std::move(schedule).build();
}

}  // namespace farandole
