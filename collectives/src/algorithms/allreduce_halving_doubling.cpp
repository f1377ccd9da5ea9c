// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Reduce-scatter by recursive halving, allgather by recursive doubling; P must be a power of two. Partners are at
/// distance 1, 2, 4, …, while the range that is exchanged halves: the association is recursive doubling's, to the same
/// bits, and the longest messages travel the shortest way. Rank r ends the first phase with the chunk whose number is r
/// with its bits reversed.
/// Rounds: 2 log₂P.  Sent per rank: 2N(P-1)/P.  Source: Rabenseifner, ICCS 2004.
Schedule halving_doubling_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  int round = 0;
  int first = 0;
  int half = at.size / 2;
  for (int distance = 1; distance < at.size; distance *= 2, half /= 2, ++round) {
    schedule.round(round);
    const int upper = first + half;
    const bool keeps_upper = (at.rank & distance) != 0;
    const int peer = at.rank ^ distance;
    schedule.send(peer, {keeps_upper ? first : upper, 0}, half * segments);
    first = keeps_upper ? upper : first;
    schedule.recv_reduce(peer, {first, 0}, half * segments);
  }
  schedule.finish({first, 0}, segments);

  int held = 1;
  for (int distance = at.size / 2; distance > 0; distance /= 2, held *= 2, ++round) {
    schedule.round(round);
    const int peer = at.rank ^ distance;
    const int sibling = first ^ held;
    schedule.send(peer, {first, 0}, held * segments);
    schedule.recv(peer, {sibling, 0}, held * segments);
    first &= ~held;
  }
  return std::move(schedule).build();
}

}  // namespace farandole
