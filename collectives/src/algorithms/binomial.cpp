// SPDX-License-Identifier: Apache-2.0
// Binomial tree: the number of ranks that have been reached doubles every round. Best for short vectors, and for
// collectives with a root.
//
// Positions in the tree are counted from the root: position v is rank root + v (mod P). The parent of v is v without
// its lowest set bit. The children of v are v + 1, v + 2, v + 4, …, for each power of two below v's lowest set bit. The
// edge between v and v + 2^l lies on level l. The subtree below that edge has the 2^l positions from v + 2^l on that
// are less than P. With 8 ranks:
//
//     0 ─┬─ 1              level 0: 0-1, 2-3, 4-5, 6-7
//        ├─ 2 ─── 3        level 1: 0-2, 4-6
//        └─ 4 ─┬─ 5        level 2: 0-4
//              └─ 6 ─── 7
#include <algorithm>
#include <bit>
#include <utility>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

/// This rank's edges in the tree.
struct BinomialTree {
  explicit BinomialTree(const Place& place)
      : at(place), position(place.at(-place.root)), levels(ceil_log2(place.size)) {}

  bool has_parent(int level) const { return is_on(level) && is_lower_end(level); }
  bool has_child(int level) const { return is_on(level) && !is_lower_end(level) && position + (1 << level) < at.size; }
  int parent(int level) const { return at.at(-(1 << level)); }
  int child(int level) const { return at.at(1 << level); }
  /// Number of ranks in the subtree of this rank. `level`: the level of the edge to the parent.
  int own_ranks(int level) const { return std::min(1 << level, at.size - position); }
  /// Number of ranks in the subtree of the child on `level`.
  int child_ranks(int level) const { return std::min(1 << level, at.size - position - (1 << level)); }

  Place at;
  int position;
  int levels;

 private:
  /// True if this position may be an end of an edge on `level`: all bits below `level` are 0.
  bool is_on(int level) const { return position % (1 << level) == 0; }
  bool is_lower_end(int level) const { return (position >> level & 1) != 0; }
};

// ---- Reduce and broadcast of the whole vector. Chunks: 1.

/// Reduces to the root. On level 0 the positions 1, 3, 5, … send to the position before, on level 1 the positions 2, 6,
/// 10, … send two positions back, and so on: neighbours are combined first, then pairs of neighbours. The segments form
/// a pipeline: each segment climbs one level in a round, and the next segment starts one round later. The root finishes
/// each segment. Positions are counted from the root, so the association depends on the root.
/// Rounds: ⌈log₂P⌉ + segments - 1.  Sent per rank: N; the root sends nothing.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
void binomial_reduce_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int round = 0; round < tree.levels + segments - 1; ++round) {
    schedule.round(first_round + round);
    for (int level = std::max(0, round - segments + 1); level <= std::min(round, tree.levels - 1); ++level) {
      const Piece piece{0, round - level};
      if (tree.has_parent(level)) {
        schedule.send(tree.parent(level), piece);
      } else if (tree.has_child(level)) {
        schedule.recv_reduce(tree.child(level), piece);
        if (tree.position == 0 && level == tree.levels - 1) schedule.finish(piece, 1);
      }
    }
  }
  if (at.size == 1) schedule.finish({0, 0}, segments);
}

/// Broadcasts from the root: the reduce in reverse. Each segment descends one level in a round and begins at the
/// highest level, so the child with the largest subtree receives first.
/// Rounds: ⌈log₂P⌉ + segments - 1.  Sent per rank: up to N⌈log₂P⌉ (the root); half of the ranks send nothing.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
void binomial_broadcast_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int round = 0; round < tree.levels + segments - 1; ++round) {
    schedule.round(first_round + round);
    for (int depth = std::max(0, round - segments + 1); depth <= std::min(round, tree.levels - 1); ++depth) {
      const int level = tree.levels - 1 - depth;
      const Piece piece{0, round - depth};
      if (tree.has_parent(level)) {
        schedule.recv(tree.parent(level), piece);
      } else if (tree.has_child(level)) {
        schedule.send(tree.child(level), piece);
      }
    }
  }
}

/// Every edge of the tree carries each segment once.
AlgorithmCost binomial_broadcast_cost(const Place& at, int segments) {
  const std::int64_t messages = std::int64_t{at.size - 1} * segments;
  return {pipeline_rounds(ceil_log2(at.size), segments), messages, messages};
}

AlgorithmCost binomial_reduce_cost(const Place& at, int segments) {
  return with_reduction(binomial_broadcast_cost(at, segments));
}

/// The broadcast starts while later segments of the reduce still climb, so the two phases share rounds.
AlgorithmCost binomial_tree_cost(const Place& at, int segments) {
  AlgorithmCost cost = binomial_reduce_cost(at, segments) + binomial_broadcast_cost(at, segments);
  cost.rounds = pipeline_rounds(2 * ceil_log2(at.size), segments);
  return cost;
}

/// Allreduce: reduces to rank 0 and broadcasts along the same tree. A segment that has arrived at rank 0 descends while
/// later segments still climb. All elements are associated along the same tree over the ranks; if P is a power of two,
/// the tree is balanced.
/// Rounds: 2⌈log₂P⌉ + segments - 1.  Sent per rank: up to N⌈log₂P⌉ (rank 0); half of the ranks send N.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_tree_allreduce(const Place& at, int segments) {
  const Place from_zero{at.rank, at.size, 0};
  ScheduleBuilder schedule(at, /*chunks=*/1, segments);
  binomial_reduce_phase(schedule, from_zero, segments, 0);
  binomial_broadcast_phase(schedule, from_zero, segments, ceil_log2(at.size));
  return std::move(schedule).build();
}

}  // namespace

// ---- Gather and scatter of one chunk per rank. Chunks: P.

/// From level 0 up, each rank receives the chunks of its children's subtrees, and then sends all chunks of its own
/// subtree to its parent in one message. A subtree is a range of contiguous ranks, counted modulo P. If the range wraps
/// round the last chunk, the rank sends two messages.
/// Rounds: ⌈log₂P⌉.  Received by the root: N(P-1)/P.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
void binomial_gather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int level = 0; level < tree.levels; ++level) {
    schedule.round(first_round + level);
    if (tree.has_parent(level)) {
      for_each_range(at, at.rank, tree.own_ranks(level), segments,
                     [&](Piece first, int count) { schedule.send(tree.parent(level), first, count); });
    } else if (tree.has_child(level)) {
      for_each_range(at, tree.child(level), tree.child_ranks(level), segments,
                     [&](Piece first, int count) { schedule.recv(tree.child(level), first, count); });
    }
  }
}

/// From the highest level down, each rank sends every child the chunks of the child's subtree. The root first sends
/// half of the vector to the rank half way round, then a quarter to the rank a quarter of the way round, and so on.
/// Rounds: ⌈log₂P⌉.  Sent by the root: N(P-1)/P.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
void binomial_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int depth = 0; depth < tree.levels; ++depth) {
    const int level = tree.levels - 1 - depth;
    schedule.round(first_round + depth);
    if (tree.has_parent(level)) {
      for_each_range(at, at.rank, tree.own_ranks(level), segments,
                     [&](Piece first, int count) { schedule.recv(tree.parent(level), first, count); });
    } else if (tree.has_child(level)) {
      for_each_range(at, tree.child(level), tree.child_ranks(level), segments,
                     [&](Piece first, int count) { schedule.send(tree.child(level), first, count); });
    }
  }
}

/// The chunk of position v passes as many edges as v has set bits. Every position but the root sends one message, and a
/// second message if its subtree wraps round the last chunk. The subtree wraps if it contains chunk 0, which belongs to
/// position P - root, but does not begin with chunk 0. So the positions with a second message are the proper ancestors
/// of position P - root, without the root.
AlgorithmCost binomial_gather_cost(const Place& at, int segments) {
  std::int64_t edges = 0;
  for (unsigned v = 1; v < static_cast<unsigned>(at.size); ++v) {
    edges += std::popcount(v);
  }
  const int wraps = at.root == 0 ? 0 : std::popcount(static_cast<unsigned>(at.size - at.root)) - 1;
  return {ceil_log2(at.size), at.size - 1 + wraps, edges * segments};
}

std::span<const Algorithm> binomial_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "binomial_tree",
       .title = "Binomial tree, up and down",
       .make = binomial_tree_allreduce,
       .cost = binomial_tree_cost,
       .chunks = one_chunk,
       .pipelined = true,
       .logarithmic = true,
       .position_independent = true},
      {.collective = Collective::kBroadcast,
       .name = "binomial",
       .title = "Binomial tree",
       .make = single_phase<binomial_broadcast_phase, one_chunk>,
       .cost = binomial_broadcast_cost,
       .chunks = one_chunk,
       .pipelined = true,
       .logarithmic = true},
      {.collective = Collective::kReduce,
       .name = "binomial",
       .title = "Binomial tree",
       .make = single_phase<binomial_reduce_phase, one_chunk>,
       .cost = binomial_reduce_cost,
       .chunks = one_chunk,
       .pipelined = true,
       .logarithmic = true,
       .position_independent = true},
      {.collective = Collective::kGather,
       .name = "binomial",
       .title = "Binomial tree",
       .make = single_phase<binomial_gather_phase>,
       .cost = binomial_gather_cost,
       .logarithmic = true},
      {.collective = Collective::kScatter,
       .name = "binomial",
       .title = "Binomial tree",
       .make = single_phase<binomial_scatter_phase>,
       .cost = binomial_gather_cost,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
