// SPDX-License-Identifier: Apache-2.0
// Ring: each rank sends to the next rank and receives from the previous one. Best for long vectors: every link carries
// the least possible number of bytes, but the number of rounds grows with P.
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

/// Reduce-scatter around the ring. The vector is cut into P chunks. Chunk c starts at rank c + 1 and travels once round
/// the ring; every rank on the way adds its own contribution to the chunk before it passes the chunk on. After P-1
/// rounds chunk c is complete on rank c. With 4 ranks, the chunk that each rank sends:
///
///     round   rank 0   rank 1   rank 2   rank 3
///       0        3        0        1        2
///       1        2        3        0        1
///       2        1        2        3        0
///
/// All ranks send in every round, so all links are busy all the time. Each segment of a chunk is a message of its own:
/// while a rank reduces one segment, the next segment is on its way.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Patarasuk & Yuan, JPDC 69(2), 2009.
void ring_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  for (int round = 0; round < at.size - 1; ++round) {
    schedule.round(first_round + round);
    for (int segment = 0; segment < segments; ++segment) {
      schedule.send(at.next(), {at.chunk(-round - 1), segment});
      schedule.recv_reduce(at.previous(), {at.chunk(-round - 2), segment});
    }
  }
  for (int segment = 0; segment < segments; ++segment) {
    schedule.finish({at.rank, segment}, 1);
  }
}

/// Allgather around the ring. Rank r begins with chunk r and sends it to the next rank; in every further round each
/// rank passes on the chunk that it has just received. After P-1 rounds every chunk has visited every rank.
/// Rounds: P-1.  Sent per rank: N(P-1)/P.  Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
void ring_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  for (int round = 0; round < at.size - 1; ++round) {
    schedule.round(first_round + round);
    for (int segment = 0; segment < segments; ++segment) {
      schedule.send(at.next(), {at.chunk(-round), segment});
      schedule.recv(at.previous(), {at.chunk(-round - 1), segment});
    }
  }
}

/// In each of the P-1 rounds every rank sends one chunk, one message for each segment.
AlgorithmCost ring_allgather_cost(const Place& at, int segments) {
  const std::int64_t pieces = std::int64_t{at.size} * (at.size - 1) * segments;
  return {at.size - 1, pieces, pieces};
}

AlgorithmCost ring_reduce_scatter_cost(const Place& at, int segments) {
  return with_reduction(ring_allgather_cost(at, segments));
}

AlgorithmCost ring_allreduce_cost(const Place& at, int segments) {
  return ring_reduce_scatter_cost(at, segments) + ring_allgather_cost(at, segments);
}

/// Allreduce: the reduce-scatter leaves one complete chunk on each rank, then the allgather distributes the chunks. No
/// algorithm can send fewer bytes per rank. The order of additions depends on the chunk: the contributions to chunk c
/// are added in the order of the ranks c + 1, c + 2, …, c.
/// Rounds: 2(P-1).  Sent per rank: 2N(P-1)/P.  Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  ring_reduce_scatter_phase(schedule, at, segments, 0);
  ring_allgather_phase(schedule, at, segments, at.size - 1);
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> ring_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "ring",
       .title = "Segmented ring",
       .make = ring_allreduce,
       .cost = ring_allreduce_cost,
       .pipelined = true},
      {.collective = Collective::kAllgather,
       .name = "ring",
       .title = "Ring",
       .make = single_phase<ring_allgather_phase>,
       .cost = ring_allgather_cost,
       .pipelined = true},
      {.collective = Collective::kReduceScatter,
       .name = "ring",
       .title = "Ring",
       .make = single_phase<ring_reduce_scatter_phase>,
       .cost = ring_reduce_scatter_cost,
       .pipelined = true},
  };
  return kRows;
}

}  // namespace farandole
