// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>
#include <vector>

#include "algorithms/phases.h"
#include "farandole/collectives/algorithms.h"

namespace farandole {
namespace {

/// One rank's place in a binary tree over 0 … size-1 in in-order numbering: rank 0 is the root and has one child, odd
/// ranks are leaves, and otherwise the children of a rank whose lowest set bit is b are b/2 below and above it.
struct TreeNode {
  int parent = -1;
  std::vector<int> children;
  int depth = 0;
};

int parent_of(int rank, int size) {
  const int bit = rank & -rank;
  const int above = (rank ^ bit) | (bit << 1);
  return above < size ? above : rank ^ bit;
}

TreeNode in_order_node(int rank, int size) {
  TreeNode node;
  if (rank == 0) {
    if (size > 1) {
      node.children.push_back(1 << (ceil_log2(size) - 1));
    }
    return node;
  }
  node.parent = parent_of(rank, size);
  const int bit = rank & -rank;
  if (bit > 1) {
    node.children.push_back(rank - bit / 2);
    int reach = bit / 2;
    while (reach > 0 && rank + reach >= size) {
      reach /= 2;
    }
    if (reach > 0) {
      node.children.push_back(rank + reach);
    }
  }
  for (int up = rank; up != 0; up = parent_of(up, size)) {
    ++node.depth;
  }
  return node;
}

/// The second tree is the first one mirrored (even size) or shifted by one (odd size), so that a rank which has two
/// children in one tree is a leaf in the other.
TreeNode node_of(int tree, const Place& at) {
  if (tree == 0) {
    return in_order_node(at.rank, at.size);
  }
  const bool mirror = at.size % 2 == 0;
  const auto swap = [&](int rank) { return mirror ? at.size - 1 - rank : (rank + 1) % at.size; };
  TreeNode node = in_order_node(mirror ? swap(at.rank) : at.previous(), at.size);
  node.parent = node.parent < 0 ? -1 : swap(node.parent);
  for (int& child : node.children) {
    child = swap(child);
  }
  return node;
}

/// The messages of one round in one tree. A segment climbs one level a round from the deepest leaves on, is finished at
/// the root after `depth` rounds, and descends one level a round.
void add_round(ScheduleBuilder& schedule, const TreeNode& node, int tree, int depth, int round, int segments) {
  const auto piece_sent_at = [&](int start) { return Piece{tree, round - start}; };
  const auto exists = [&](Piece piece) { return piece.segment >= 0 && piece.segment < segments; };
  const Piece from_children = piece_sent_at(depth - node.depth - 1);
  if (exists(from_children)) {
    for (const int child : node.children) {
      schedule.recv_reduce(child, from_children);
    }
    if (node.parent < 0) {
      schedule.finish(from_children, 1);
    }
  }
  const Piece to_parent = piece_sent_at(depth - node.depth);
  if (node.parent >= 0 && exists(to_parent)) {
    schedule.send(node.parent, to_parent);
  }
  const Piece from_parent = piece_sent_at(depth + node.depth - 1);
  if (node.parent >= 0 && exists(from_parent)) {
    schedule.recv(node.parent, from_parent);
  }
  const Piece to_children = piece_sent_at(depth + node.depth);
  if (exists(to_children)) {
    for (const int child : node.children) {
      schedule.send(child, to_children);
    }
  }
}

}  // namespace

/// Two binary trees, each for one half of the vector, in which a rank that works in one is a leaf in the other; both
/// reduce to their root and broadcast, segment by segment.
/// Rounds: 2⌈log₂P⌉ + segments - 1.  Sent per rank: up to 2N.  Source: Sanders, Speck & Träff, Parallel Computing
/// 35(12), 2009.
Schedule double_tree_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/2, segments);
  const std::array<TreeNode, 2> nodes = {node_of(0, at), node_of(1, at)};
  const int depth = ceil_log2(at.size);
  // Round by round, not tree by tree: two ranks may be neighbours in both trees, and both ends must name their messages
  // in the same order.
  for (int round = 0; at.size > 1 && round < 2 * depth + segments - 1; ++round) {
    schedule.round(round);
    for (int tree = 0; tree < 2; ++tree) {
      add_round(schedule, nodes[static_cast<std::size_t>(tree)], tree, depth, round, segments);
    }
  }
  if (at.size == 1) {
    schedule.finish({0, 0}, 2 * segments);
  }
  return std::move(schedule).build();
}

}  // namespace farandole
