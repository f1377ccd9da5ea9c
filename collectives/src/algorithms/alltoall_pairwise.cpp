// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// In round i every rank sends to the one i+1 places on and receives from the one i+1 places back. Chunk c < P is the
/// block for rank c; chunk P+s is the block that came from rank s.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule pairwise_alltoall(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/2 * at.size, segments);
  schedule.copy({at.rank, 0}, {at.size + at.rank, 0}, segments);
  for (int distance = 1; distance < at.size; ++distance) {
    schedule.round(distance - 1);
    schedule.send(at.at(distance), {at.at(distance), 0}, segments);
    schedule.recv(at.at(-distance), {at.size + at.at(-distance), 0}, segments);
  }
  return std::move(schedule).build();
}

}  // namespace farandole
