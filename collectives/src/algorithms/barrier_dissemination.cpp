// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {

/// In turn k every rank tells the one 2^k places on whom it has heard of. The token is combined into itself, so hearing
/// of a rank twice does no harm.
/// Turns: ⌈log₂P⌉.  Sent per rank: one token a turn.  Source: Hensgen, Finkel & Manber, IJPP 17(1), 1988.
Schedule dissemination_barrier(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  for (int turn = 0; turn < ceil_log2(at.size); ++turn) {
    const Piece token{0, 0};
    const int slot = turn % 2;
    schedule.turn(turn);
    schedule.send(at.at(1 << turn), token, segments);
    schedule.recv_scratch(at.at(-(1 << turn)), slot, token, segments);
    schedule.reduce_scratch(slot, token, segments);
  }
  return std::move(schedule).build();
}

}  // namespace farandole
