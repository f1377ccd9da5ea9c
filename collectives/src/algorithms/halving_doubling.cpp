// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

bool is_power_of_two(int size) {
  return std::has_single_bit(static_cast<unsigned>(size));
}

/// In each phase every rank sends P-1 chunks in log₂P messages.
AlgorithmCost halving_doubling_cost(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  const std::int64_t size = at.size;
  return {2 * q, 2 * q * size, 2 * size * (size - 1) * segments, size * (size - 1) * segments};
}

/// Allreduce of vectors of middle length: as few rounds as a tree, as few bytes as the ring. P must be a power of two;
/// the circulant allreduce does the same for any P.
///
/// The reduce-scatter halves recursively. In round k the ranks r and r xor 2^k are partners, and both are responsible
/// for the same range of chunks. The lower rank keeps the lower half of the range and sends the upper half; the higher
/// rank keeps the upper half and sends the lower half; each reduces the received chunks. After log₂P rounds rank r is
/// left with one complete chunk, whose number is r with its bits reversed. The allgather doubles recursively: the same
/// partners, in reverse order, exchange all chunks that they hold.
///
/// The partners are 1, 2, 4, … ranks apart while the range halves, so the longest messages travel the shortest way. The
/// additions are associated as in recursive doubling, so both algorithms give the same bits.
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

}  // namespace

std::span<const Algorithm> halving_doubling_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "halving_doubling",
       .title = "Recursive halving and doubling",
       .make = halving_doubling_allreduce,
       .cost = halving_doubling_cost,
       .supports = is_power_of_two,
       .logarithmic = true,
       .position_independent = true},
  };
  return kRows;
}

}  // namespace farandole
