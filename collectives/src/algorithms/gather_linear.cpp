// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "farandole/collectives/algorithms.h"

namespace farandole {

/// Every rank sends to the root, which takes one rank's chunk a round. No byte travels twice.
/// Rounds: P-1.  Sent per rank: N/P.
Schedule linear_gather(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  for (int distance = 1; distance < at.size; ++distance) {
    const int sender = (at.root + distance) % at.size;
    schedule.round(distance - 1);
    if (at.rank == at.root) {
      schedule.recv(sender, {sender, 0}, segments);
    } else if (at.rank == sender) {
      schedule.send(at.root, {at.rank, 0}, segments);
    }
  }
  return std::move(schedule).build();
}

}  // namespace farandole
