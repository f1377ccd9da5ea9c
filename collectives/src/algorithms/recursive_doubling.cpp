// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

/// With B = 2^⌊log₂P⌋ positions and E = P - B pairs: E messages first, then B messages in each of log₂B rounds, then E
/// messages, which are not reduced.
AlgorithmCost recursive_doubling_cost(const Place& at, int segments) {
  const int levels = std::bit_width(static_cast<unsigned>(at.size)) - 1;
  const std::int64_t positions = std::int64_t{1} << levels;
  const std::int64_t pairs = at.size - positions;
  const std::int64_t messages = positions * levels + 2 * pairs;
  return {levels + (pairs > 0 ? 2 : 0), messages, messages * segments, (messages - pairs) * segments};
}

/// Allreduce of short vectors, in the fewest rounds. In round k the ranks r and r xor 2^k exchange the whole vector,
/// and both reduce the received vector into their own. With 4 ranks: 0-1 and 2-3, then 0-2 and 1-3. After round k every
/// rank holds the sum over the aligned block of 2^(k+1) ranks that it belongs to, so after log₂P rounds it holds the
/// sum over all ranks. Every element is associated along the same balanced binary tree over the ranks, and all ranks
/// get the same bits.
///
/// If P is not a power of two, B = 2^⌊log₂P⌋ *positions* take part. Each of the first P - B pairs of neighbours (0 and
/// 1, 2 and 3, …) shares one position: before the rounds the second rank of the pair sends its vector to the first
/// rank, and after the rounds it receives the result.
/// Rounds: ⌊log₂P⌋, and 2 more if P is not a power of two.  Sent per rank: N per round.
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
  // Two scratch slots alternate, because the next message may arrive while the rank reduces the last message.
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
  if (!second) schedule.finish(all, segments);
  schedule.round(round);
  if (second) {
    schedule.recv(at.rank - 1, all, segments);
  } else if (in_pair) {
    schedule.send(at.rank + 1, all, segments);
  }
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> recursive_doubling_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "recursive_doubling",
       .title = "Recursive doubling",
       .make = recursive_doubling_allreduce,
       .cost = recursive_doubling_cost,
       .chunks = one_chunk,
       .logarithmic = true,
       .position_independent = true},
  };
  return kRows;
}

}  // namespace farandole
