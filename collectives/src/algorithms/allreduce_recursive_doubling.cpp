// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Partners at distance 1, 2, 4, … exchange all they have and both reduce it: a balanced binary tree over contiguous
/// ranks, the same bits everywhere. With P no power of two, the first pairs of neighbours are combined before and the
/// second rank of each gets the result afterwards.
/// Rounds: ⌊log₂P⌋, and 2 more if P is no power of two.  Sent per rank: N per round.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule recursive_doubling_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  const int positions = static_cast<int>(std::bit_floor(static_cast<unsigned>(at.size)));
  const int pairs = at.size - positions;
  const bool in_pair = at.rank < 2 * pairs;
  const bool second = in_pair && at.rank % 2 == 1;
  const Piece all{0, 0};
  int round = 0;
  schedule.round(round);
  if (second) {
    schedule.send(at.rank - 1, all, segments);
  } else if (in_pair) {
    schedule.recv_reduce(at.rank + 1, all, segments);
  }
  round += pairs > 0 ? 1 : 0;

  const int position = in_pair ? at.rank / 2 : at.rank - pairs;
  // Two slots in turn: the next message may come while the last one is being reduced.
  int slot = 0;
  for (int distance = 1; distance < positions; distance *= 2, ++round, slot = 1 - slot) {
    if (!second) {
      schedule.round(round);
      const int partner = position ^ distance;
      const int peer = partner < pairs ? 2 * partner : partner + pairs;
      schedule.send(peer, all, segments);
      schedule.recv_scratch(peer, slot, all, segments);
      schedule.reduce_scratch(slot, all, segments);
    }
  }
  if (!second) {
    schedule.finish(all, segments);
  }
  schedule.round(round);
  if (second) {
    schedule.recv(at.rank - 1, all, segments);
  } else if (in_pair) {
    schedule.send(at.rank + 1, all, segments);
  }
  return std::move(schedule).build();
}

}  // namespace farandole
