// SPDX-License-Identifier: Apache-2.0
// Linear: the root exchanges one message with every other rank, one rank in each round. No byte travels twice. Best for
// long chunks.
#include <utility>

#include "algorithms/families.h"

namespace farandole {
namespace {

/// Every rank sends its chunk straight to the root. The root receives from rank root + 1 first, then from root + 2, and
/// so on, one chunk in each round.
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

/// The gather in reverse: the root sends every rank its chunk.
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

/// In each round one message with all segments of a chunk.
AlgorithmCost linear_cost(const Place& at, int segments) {
  return {at.size - 1, at.size - 1, std::int64_t{at.size - 1} * segments};
}

}  // namespace

std::span<const Algorithm> linear_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kGather,
       .name = "linear",
       .title = "Straight to the root",
       .make = linear_gather,
       .cost = linear_cost},
      {.collective = Collective::kScatter,
       .name = "linear",
       .title = "Straight from the root",
       .make = linear_scatter,
       .cost = linear_cost},
  };
  return kRows;
}

}  // namespace farandole
