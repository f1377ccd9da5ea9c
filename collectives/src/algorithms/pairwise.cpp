// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/families.h"

namespace farandole {
namespace {

/// An alltoall's schedule has P chunks of input and P chunks of output.
int chunks_of_both(int size) {
  return 2 * size;
}

/// Every rank sends one message to every other rank.
AlgorithmCost pairwise_cost(const Place& at, int segments) {
  const std::int64_t messages = std::int64_t{at.size} * (at.size - 1);
  return {at.size - 1, messages, messages * segments};
}

/// Alltoall. In round i every rank sends one message to the rank i + 1 places on, and receives one message from the
/// rank i + 1 places back. Each block travels straight to its destination; each rank copies its block for itself. Chunk
/// c < P is the block for rank c; chunk P + s is the block that came from rank s.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule pairwise_alltoall(const Place& at, int segments) {
  ScheduleBuilder schedule(at, chunks_of_both(at.size), segments);
  schedule.copy({at.rank, 0}, {at.size + at.rank, 0}, segments);
  for (int distance = 1; distance < at.size; ++distance) {
    schedule.round(distance - 1);
    schedule.send(at.at(distance), {at.at(distance), 0}, segments);
    schedule.recv(at.at(-distance), {at.size + at.at(-distance), 0}, segments);
  }
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> pairwise_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAlltoall,
       .name = "pairwise",
       .title = "Pairwise exchange",
       .make = pairwise_alltoall,
       .cost = pairwise_cost,
       .chunks = chunks_of_both},
  };
  return kRows;
}

}  // namespace farandole
