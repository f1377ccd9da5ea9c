// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>
#include <vector>

#include "algorithms/families.h"
#include "algorithms/phases.h"

namespace farandole {
namespace {

constexpr int kNoParent = -1;

/// One rank's neighbours in a binary tree.
struct TreeNode {
  int parent = kNoParent;
  std::vector<int> children;
  int depth = 0;  ///< edges between the rank and the root
};

/// Parent in the first tree, whose ranks are numbered in order (left subtree, node, right subtree). Rank 0 is the root
/// and has one child; odd ranks are leaves. Any other rank r, with lowest set bit b, has the children r - b/2 and r +
/// b/2. With 8 ranks: 0 → 4; 4 → 2, 6; 2 → 1, 3; 6 → 5, 7. If r + b/2 is not less than P, the child is the first of r +
/// b/4, r + b/8, … that is.
int parent_of(int rank, int size) {
  const int bit = rank & -rank;
  const int above = (rank ^ bit) | (bit << 1);
  return above < size ? above : rank ^ bit;
}

TreeNode in_order_node(int rank, int size) {
  TreeNode node;
  if (rank == 0) {
    if (size > 1) node.children.push_back(1 << (ceil_log2(size) - 1));
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
    if (reach > 0) node.children.push_back(rank + reach);
  }
  for (int up = rank; up != 0; up = parent_of(up, size)) {
    ++node.depth;
  }
  return node;
}

/// This rank's node in tree 0 or 1. Tree 1 is tree 0 mirrored (even P) or shifted by one rank (odd P), so that a rank
/// with two children in one tree is a leaf in the other tree.
TreeNode node_of(int tree, const Place& at) {
  if (tree == 0) return in_order_node(at.rank, at.size);
  const bool mirror = at.size % 2 == 0;
  const auto swap = [&](int rank) { return mirror ? at.size - 1 - rank : (rank + 1) % at.size; };
  TreeNode node = in_order_node(mirror ? swap(at.rank) : at.previous(), at.size);
  node.parent = node.parent == kNoParent ? kNoParent : swap(node.parent);
  for (int& child : node.children) {
    child = swap(child);
  }
  return node;
}

/// Adds this rank's messages of one round in one tree. Each segment climbs one level in a round, from the deepest
/// leaves on. The root finishes the segment after `depth` rounds; then the segment descends one level in a round.
void add_round(ScheduleBuilder& schedule, const TreeNode& node, int tree, int depth, int round, int segments) {
  const auto piece_sent_at = [&](int start) { return Piece{tree, round - start}; };
  const auto exists = [&](Piece piece) { return piece.segment >= 0 && piece.segment < segments; };
  const Piece from_children = piece_sent_at(depth - node.depth - 1);
  if (exists(from_children)) {
    for (const int child : node.children) {
      schedule.recv_reduce(child, from_children);
    }
    if (node.parent == kNoParent) schedule.finish(from_children, 1);
  }
  const Piece to_parent = piece_sent_at(depth - node.depth);
  if (node.parent != kNoParent && exists(to_parent)) schedule.send(node.parent, to_parent);
  const Piece from_parent = piece_sent_at(depth + node.depth - 1);
  if (node.parent != kNoParent && exists(from_parent)) schedule.recv(node.parent, from_parent);
  const Piece to_children = piece_sent_at(depth + node.depth);
  if (exists(to_children)) {
    for (const int child : node.children) {
      schedule.send(child, to_children);
    }
  }
}

int two_chunks(int) {
  return 2;
}

/// Each tree sends every segment of its half up and down each of the tree's P-1 edges.
AlgorithmCost double_tree_cost(const Place& at, int segments) {
  const std::int64_t messages = 4 * std::int64_t{at.size - 1} * segments;
  return {pipeline_rounds(2 * ceil_log2(at.size), segments), messages, messages, messages / 2};
}

/// Allreduce along two binary trees. Each tree reduces one half of the vector to its root and broadcasts the result,
/// segment by segment, so that later segments still climb while the first segments descend. In a single binary tree the
/// leaves, half of all ranks, would send nothing down. Here every leaf of one tree is an inner node of the other tree,
/// so all ranks send and receive about the same number of bytes. With many segments that number is as low as in the
/// ring, but the number of rounds grows with log₂P only. Best for vectors of middle length on many hosts. All elements
/// of a half are associated along the tree of that half.
/// Rounds: 2⌈log₂P⌉ + segments - 1.  Sent per rank: up to 2N.
/// Source: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule double_tree_allreduce(const Place& at, int segments) {
  ScheduleBuilder schedule(at, /*chunks=*/2, segments);
  const std::array<TreeNode, 2> nodes = {node_of(0, at), node_of(1, at)};
  const int depth = ceil_log2(at.size);
  // In each round add the messages of tree 0, then of tree 1: two ranks may be neighbours in both trees, and must list
  // their messages to each other in the same order.
  for (int round = 0; at.size > 1 && round < 2 * depth + segments - 1; ++round) {
    schedule.round(round);
    for (int tree = 0; tree < 2; ++tree) {
      add_round(schedule, nodes[static_cast<std::size_t>(tree)], tree, depth, round, segments);
    }
  }
  if (at.size == 1) schedule.finish({0, 0}, 2 * segments);
  return std::move(schedule).build();
}

}  // namespace

std::span<const Algorithm> double_tree_family() {
  static constexpr Algorithm kRows[] = {
      {.collective = Collective::kAllreduce,
       .name = "double_tree",
       .title = "Double binary tree",
       .make = double_tree_allreduce,
       .cost = double_tree_cost,
       .chunks = two_chunks,
       .pipelined = true,
       .logarithmic = true},
  };
  return kRows;
}

}  // namespace farandole
