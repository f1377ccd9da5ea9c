// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// The root sends every rank its chunk, one a round. No byte travels twice.
/// Rounds: P-1.  Sent by the root: N(P-1)/P.
Schedule linear_scatter(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  for (int distance = 1; distance < at.size; ++distance) {
    const int receiver = (at.root + distance) % at.size;
    schedule.round(distance - 1);
    if (at.rank == at.root) {
      schedule.send(receiver, {receiver, 0}, segments);
    } else if (at.rank == receiver) {
      schedule.recv(at.root, {at.rank, 0}, segments);
    }
  }
  return std::move(schedule).build();
}

}  // namespace farandole
