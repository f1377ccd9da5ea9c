// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

/// Every rank sends and reduces one token in each round.
AlgorithmCost dissemination_cost(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  return with_reduction({q, std::int64_t{at.size} * q, std::int64_t{at.size} * q * segments});
}

/// Barrier. In round k every rank sends a token to the rank 2^k places on and waits for the token of the rank 2^k
/// places back. A token reports all ranks that its sender knows to have arrived. After round k = 0, 1, … a rank knows
/// that the 2^(k+1) - 1 ranks before it have arrived; after ⌈log₂P⌉ rounds it knows that all ranks have arrived. The
/// schedule reduces the received token into the rank's own token. If P is not a power of two, a token counts some ranks
/// twice, which a barrier allows. Two scratch slots alternate, because the next token may arrive while the rank reduces
/// the last token.
/// Rounds: ⌈log₂P⌉.  Sent per rank: one token in each round.
/// Source: Hensgen, Finkel & Manber, IJPP 17(1), 1988.
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

}  // namespace

std::span<const Algorithm> dissemination_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kBarrier,
       .name = "dissemination",
       .title = "Dissemination",
       .make = dissemination_barrier,
       .cost = dissemination_cost,
       .chunks = one_chunk,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
