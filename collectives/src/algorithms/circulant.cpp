// SPDX-License-Identifier: Apache-2.0
// Circulant graph: in each round every rank sends to the rank a fixed distance away, and the distance about halves or
// doubles from round to round. As few rounds as halving-doubling and as few bytes as the ring, for any number of ranks.
// Best for vectors of middle length.
#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

/// Number of chunks that a rank holds before each round of an allgather, and after the last round: 1, …, P. The number
/// before a round is also the distance between the partners of the round.
using ChunkCounts = std::vector<int>;

/// Träff's counts: each number is half of the following number, rounded up. With 6 ranks: 1, 2, 3, 6.
ChunkCounts halving_counts(int size) {
  ChunkCounts counts{size};
  while (counts.back() > 1) {
    counts.push_back((counts.back() + 1) / 2);
  }
  std::reverse(counts.begin(), counts.end());
  return counts;
}

/// Bruck's counts: the powers of two below P, then P. With 6 ranks: 1, 2, 4, 6.
ChunkCounts doubling_counts(int size) {
  ChunkCounts counts{1};
  while (counts.back() < size) {
    counts.push_back(std::min(2 * counts.back(), size));
  }
  return counts;
}

/// Before a round, rank r holds h contiguous chunks, from chunk r on. In the round, rank r + h, whose own chunk is the
/// first that rank r lacks, sends rank r the next chunks; rank r sends as many chunks, from chunk r on, to rank r - h.
void circulant_allgather(ScheduleBuilder& schedule, const Place& at, int segments, int first_round,
                         const ChunkCounts& counts) {
  for (int round = 0; round < static_cast<int>(counts.size()) - 1; ++round) {
    const int held = counts[static_cast<std::size_t>(round)];
    const int more = counts[static_cast<std::size_t>(round) + 1] - held;
    schedule.round(first_round + round);
    for_each_range(at, at.rank, more, segments,
                   [&](Piece first, int count) { schedule.send(at.at(-held), first, count); });
    for_each_range(at, at.rank + held, more, segments,
                   [&](Piece first, int count) { schedule.recv(at.at(held), first, count); });
  }
}

}  // namespace

/// Reduce-scatter. At first every rank is responsible for all P chunks. A rank that is responsible for h chunks, from
/// its own chunk on, keeps the first ⌈h/2⌉ chunks and sends the last ⌊h/2⌋ chunks to the rank ⌈h/2⌉ places on, whose
/// own range begins with these chunks. After ⌈log₂P⌉ rounds each rank is responsible for its own chunk only, and has
/// received all contributions to that chunk. With 6 ranks h is 6, 3, 2, 1, and the partners are 3, 2 and 1 places away.
/// A range that wraps round the last chunk is sent as two messages.
/// Rounds: ⌈log₂P⌉.  Sent per rank: N(P-1)/P.
/// Source: Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv 2410.14234, 2024.
void circulant_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const ChunkCounts counts = halving_counts(at.size);
  for (int round = 0; round < static_cast<int>(counts.size()) - 1; ++round) {
    const auto level = counts.size() - 1 - static_cast<std::size_t>(round);
    const int before = counts[level];
    const int kept = counts[level - 1];
    schedule.round(first_round + round);
    for_each_range(at, at.rank + kept, before - kept, segments,
                   [&](Piece first, int count) { schedule.send(at.at(kept), first, count); });
    for_each_range(at, at.rank, before - kept, segments,
                   [&](Piece first, int count) { schedule.recv_reduce(at.at(-kept), first, count); });
  }
  schedule.finish({at.rank, 0}, segments);
}

/// Allgather: the reduce-scatter in reverse. Rank r begins with chunk r; the number of chunks that each rank holds
/// about doubles every round.
/// Rounds: ⌈log₂P⌉.  Sent per rank: N(P-1)/P.  Source: Träff, arXiv 2410.14234, 2024.
void circulant_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  circulant_allgather(schedule, at, segments, first_round, halving_counts(at.size));
}

/// Every rank sends P-1 chunks in q rounds. In a round in which each rank sends n chunks, every rank sends one message,
/// and n-1 ranks send a second message, because their range wraps round the last chunk.
AlgorithmCost circulant_cost(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  const std::int64_t size = at.size;
  return {q, size * q + size - 1 - q, size * (size - 1) * segments};
}

namespace {

AlgorithmCost circulant_reduce_scatter_cost(const Place& at, int segments) {
  return with_reduction(circulant_cost(at, segments));
}

AlgorithmCost circulant_allreduce_cost(const Place& at, int segments) {
  return circulant_reduce_scatter_cost(at, segments) + circulant_cost(at, segments);
}

/// Allreduce: reduce-scatter, then allgather; like halving-doubling, but for any P. The contributions to chunk c are
/// combined along the tree of chunk 0, rotated by c ranks.
/// Rounds: 2⌈log₂P⌉.  Sent per rank: 2N(P-1)/P.  Source: Träff, arXiv 2410.14234, 2024.
Schedule circulant_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_reduce_scatter_phase(schedule, at, segments, 0);
  circulant_allgather_phase(schedule, at, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

/// Bruck's allgather: the number of chunks that a rank holds exactly doubles in every round but the last. Here every
/// chunk is received at its final place; in the original paper each rank collects the chunks from place 0 on and
/// rotates the vector at the end.
/// Rounds: ⌈log₂P⌉.  Sent per rank: N(P-1)/P.  Source: Bruck et al., IEEE TPDS 8(11), 1997.
Schedule bruck_allgather(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/at.size, segments);
  circulant_allgather(schedule, at, segments, 0, doubling_counts(at.size));
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> circulant_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "circulant",
       .title = "Circulant reduce-scatter and allgather",
       .make = circulant_allreduce,
       .cost = circulant_allreduce_cost,
       .logarithmic = true},
      {.collective = Collective::kAllgather,
       .name = "bruck",
       .title = "Bruck's doubling",
       .make = bruck_allgather,
       .cost = circulant_cost,
       .logarithmic = true},
      {.collective = Collective::kReduceScatter,
       .name = "circulant",
       .title = "Circulant halving",
       .make = single_phase<circulant_reduce_scatter_phase>,
       .cost = circulant_reduce_scatter_cost,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
