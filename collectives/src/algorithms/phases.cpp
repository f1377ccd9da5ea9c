// SPDX-License-Identifier: Apache-2.0
#include "algorithms/phases.h"

#include <algorithm>
#include <bit>

namespace farandole {
namespace {

/// Calls act(first piece, pieces) for `count` chunks from `first` on, round the end: once, or twice where they wrap.
/// Both ends of a message name the same chunks and so split them alike.
template <typename Act>
void for_ranges(const Place& at, int first, int count, int segments, const Act& act) {
  const int start = (first % at.size + at.size) % at.size;
  const int before_end = std::min(count, at.size - start);
  act(Piece{start, 0}, before_end * segments);
  if (before_end < count) {
    act(Piece{0, 0}, (count - before_end) * segments);
  }
}

/// Binomial trees count ranks from the root on. The children of rank v are v + 1, v + 2, v + 4, … below v's lowest set
/// bit, and the subtree of v's child at distance d is the d ranks from v + d on, as far as there are ranks.
struct BinomialTree {
  explicit BinomialTree(const Place& place) : at(place), self(place.at(-place.root)), levels(ceil_log2(place.size)) {}

  /// Whether this rank has a message with its parent on `level`; if not, it may have one with a child.
  bool sends_up(int level) const { return (self >> level & 1) != 0; }
  bool reaches(int level) const { return self % (1 << level) == 0; }
  bool has_child(int level) const { return reaches(level) && !sends_up(level) && self + (1 << level) < at.size; }
  bool has_parent(int level) const { return reaches(level) && sends_up(level); }
  int child(int level) const { return at.at(1 << level); }
  int parent(int level) const { return at.at(-(1 << level)); }
  /// Ranks in the subtree of the child on `level`, or, for its own edge to the parent, in the own one.
  int child_ranks(int level) const { return std::min(1 << level, at.size - self - (1 << level)); }
  int own_ranks(int level) const { return std::min(1 << level, at.size - self); }

  Place at;
  int self;
  int levels;
};

}  // namespace

int ceil_log2(int size) {
  return std::bit_width(static_cast<unsigned>(size) - 1U);
}

Holdings halving_holdings(int size) {
  Holdings holdings{size};
  while (holdings.back() > 1) {
    holdings.push_back((holdings.back() + 1) / 2);
  }
  std::reverse(holdings.begin(), holdings.end());
  return holdings;
}

Holdings doubling_holdings(int size) {
  Holdings holdings{1};
  while (holdings.back() < size) {
    holdings.push_back(std::min(2 * holdings.back(), size));
  }
  return holdings;
}

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

void ring_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  for (int round = 0; round < at.size - 1; ++round) {
    schedule.round(first_round + round);
    for (int segment = 0; segment < segments; ++segment) {
      schedule.send(at.next(), {at.chunk(-round), segment});
      schedule.recv(at.previous(), {at.chunk(-round - 1), segment});
    }
  }
}

void circulant_reduce_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const Holdings holdings = halving_holdings(at.size);
  for (int round = 0; round < static_cast<int>(holdings.size()) - 1; ++round) {
    const auto level = holdings.size() - 1 - static_cast<std::size_t>(round);
    const int before = holdings[level];
    const int kept = holdings[level - 1];
    schedule.round(first_round + round);
    // The chunks kept … before-1 places after this rank are reduced further by the rank `kept` places on.
    for_ranges(at, at.rank + kept, before - kept, segments,
               [&](Piece first, int count) { schedule.send(at.at(kept), first, count); });
    for_ranges(at, at.rank, before - kept, segments,
               [&](Piece first, int count) { schedule.recv_reduce(at.at(-kept), first, count); });
  }
  schedule.finish({at.rank, 0}, segments);
}

void circulant_allgather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round,
                               const Holdings& holdings) {
  for (int round = 0; round < static_cast<int>(holdings.size()) - 1; ++round) {
    const int held = holdings[static_cast<std::size_t>(round)];
    const int more = holdings[static_cast<std::size_t>(round) + 1] - held;
    schedule.round(first_round + round);
    for_ranges(at, at.rank, more, segments, [&](Piece first, int count) { schedule.send(at.at(-held), first, count); });
    for_ranges(at, at.rank + held, more, segments,
               [&](Piece first, int count) { schedule.recv(at.at(held), first, count); });
  }
}

void binomial_reduce_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int round = 0; round < tree.levels + segments - 1; ++round) {
    schedule.round(first_round + round);
    // A segment climbs one level a round, and one more segment sets out each round.
    for (int level = std::max(0, round - segments + 1); level <= std::min(round, tree.levels - 1); ++level) {
      const Piece piece{0, round - level};
      if (tree.has_parent(level)) {
        schedule.send(tree.parent(level), piece);
      } else if (tree.has_child(level)) {
        schedule.recv_reduce(tree.child(level), piece);
        if (tree.self == 0 && level == tree.levels - 1) {
          schedule.finish(piece, 1);
        }
      }
    }
  }
  if (at.size == 1) {
    schedule.finish({0, 0}, segments);
  }
}

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

void binomial_gather_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int level = 0; level < tree.levels; ++level) {
    schedule.round(first_round + level);
    if (tree.has_parent(level)) {
      for_ranges(at, at.rank, tree.own_ranks(level), segments,
                 [&](Piece first, int count) { schedule.send(tree.parent(level), first, count); });
    } else if (tree.has_child(level)) {
      for_ranges(at, tree.child(level), tree.child_ranks(level), segments,
                 [&](Piece first, int count) { schedule.recv(tree.child(level), first, count); });
    }
  }
}

void binomial_scatter_phase(ScheduleBuilder& schedule, const Place& at, int segments, int first_round) {
  const BinomialTree tree(at);
  for (int depth = 0; depth < tree.levels; ++depth) {
    const int level = tree.levels - 1 - depth;
    schedule.round(first_round + depth);
    if (tree.has_parent(level)) {
      for_ranges(at, at.rank, tree.own_ranks(level), segments,
                 [&](Piece first, int count) { schedule.recv(tree.parent(level), first, count); });
    } else if (tree.has_child(level)) {
      for_ranges(at, tree.child(level), tree.child_ranks(level), segments,
                 [&](Piece first, int count) { schedule.send(tree.child(level), first, count); });
    }
  }
}

}  // namespace farandole
