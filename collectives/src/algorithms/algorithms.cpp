// SPDX-License-Identifier: Apache-2.0
#include "farandole/collectives/algorithms.h"

#include <algorithm>
#include <array>
#include <bit>

#include "algorithms/phases.h"
#include "farandole/internal/choice.h"

namespace farandole {
namespace {

constexpr Words<kCollectiveCount> kCollectiveNames = {
    "allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "gather", "scatter", "alltoall", "barrier"};

// The formulas of docs/algorithms.md. P is the size, S the segments, q = ⌈log₂P⌉.

int one_chunk(int) {
  return 1;
}
int two_chunks(int) {
  return 2;
}
int two_chunks_per_rank(int size) {
  return 2 * size;
}
bool power_of_two(int size) {
  return std::has_single_bit(static_cast<unsigned>(size));
}

/// Rounds of a pipeline of `levels` levels.
int pipeline_rounds(int levels, int segments) {
  return levels == 0 ? 0 : levels + segments - 1;
}

AlgorithmCost operator+(const AlgorithmCost& a, const AlgorithmCost& b) {
  return {a.rounds + b.rounds, a.messages + b.messages, a.pieces_sent + b.pieces_sent,
          a.pieces_reduced + b.pieces_reduced};
}

/// P-1 rounds in which every rank sends one chunk, segment by segment.
AlgorithmCost ring_phase(const Place& at, int segments) {
  const std::int64_t pieces = std::int64_t{at.size} * (at.size - 1) * segments;
  return {at.size - 1, pieces, pieces};
}

/// The same where every piece that arrives is reduced.
AlgorithmCost reducing(AlgorithmCost cost) {
  cost.pieces_reduced = cost.pieces_sent;
  return cost;
}

AlgorithmCost reducing_ring_phase(const Place& at, int segments) {
  return reducing(ring_phase(at, segments));
}

AlgorithmCost two_ring_phases(const Place& at, int segments) {
  return reducing_ring_phase(at, segments) + ring_phase(at, segments);
}

/// P-1 chunks leave every rank in q rounds. A round that moves n chunks has a message from every rank, and n-1 of the
/// ranges wrap round the last chunk into a second one.
AlgorithmCost circulant_phase(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  const std::int64_t size = at.size;
  return {q, size * q + size - 1 - q, size * (size - 1) * segments};
}

AlgorithmCost reducing_circulant_phase(const Place& at, int segments) {
  return reducing(circulant_phase(at, segments));
}

AlgorithmCost two_circulant_phases(const Place& at, int segments) {
  return reducing_circulant_phase(at, segments) + circulant_phase(at, segments);
}

/// Every rank but the root sends all segments up the tree, or gets them down.
AlgorithmCost binomial_phase(const Place& at, int segments) {
  const std::int64_t messages = std::int64_t{at.size - 1} * segments;
  return {pipeline_rounds(ceil_log2(at.size), segments), messages, messages};
}

AlgorithmCost reducing_binomial_phase(const Place& at, int segments) {
  return reducing(binomial_phase(at, segments));
}

AlgorithmCost binomial_tree_cost(const Place& at, int segments) {
  const AlgorithmCost phase = binomial_phase(at, segments);
  return {pipeline_rounds(2 * ceil_log2(at.size), segments), 2 * phase.messages, 2 * phase.pieces_sent,
          phase.pieces_sent};
}

/// Both trees together move each segment of each half up and down every edge.
AlgorithmCost double_tree_cost(const Place& at, int segments) {
  const std::int64_t messages = 4 * std::int64_t{at.size - 1} * segments;
  return {pipeline_rounds(2 * ceil_log2(at.size), segments), messages, messages, messages / 2};
}

/// Chunk v places after the root's passes as many edges as v has bits. Subtrees that chunk 0 lies inside of, after
/// their first, wrap: those of its proper ancestors other than the root.
AlgorithmCost binomial_gather_cost(const Place& at, int segments) {
  std::int64_t edges = 0;
  for (unsigned v = 1; v < static_cast<unsigned>(at.size); ++v) {
    edges += std::popcount(v);
  }
  const int wraps = at.root == 0 ? 0 : std::popcount(static_cast<unsigned>(at.size - at.root)) - 1;
  return {ceil_log2(at.size), at.size - 1 + wraps, edges * segments};
}

AlgorithmCost linear_cost(const Place& at, int segments) {
  return {at.size - 1, at.size - 1, std::int64_t{at.size - 1} * segments};
}

AlgorithmCost recursive_doubling_cost(const Place& at, int segments) {
  const int levels = std::bit_width(static_cast<unsigned>(at.size)) - 1;
  const std::int64_t positions = std::int64_t{1} << levels;
  const std::int64_t pairs = at.size - positions;
  const std::int64_t messages = positions * levels + 2 * pairs;
  return {levels + (pairs > 0 ? 2 : 0), messages, messages * segments, (messages - pairs) * segments};
}

AlgorithmCost halving_doubling_cost(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  const std::int64_t size = at.size;
  return {2 * q, 2 * q * size, 2 * size * (size - 1) * segments, size * (size - 1) * segments};
}

AlgorithmCost scatter_allgather_cost(const Place& at, int segments) {
  return binomial_gather_cost(at, segments) + circulant_phase(at, segments);
}

AlgorithmCost reduce_scatter_gather_cost(const Place& at, int segments) {
  return reducing_circulant_phase(at, segments) + binomial_gather_cost(at, segments);
}

AlgorithmCost pairwise_cost(const Place& at, int segments) {
  const std::int64_t messages = std::int64_t{at.size} * (at.size - 1);
  return {at.size - 1, messages, messages * segments};
}

AlgorithmCost dissemination_cost(const Place& at, int segments) {
  const int q = ceil_log2(at.size);
  return reducing({q, std::int64_t{at.size} * q, std::int64_t{at.size} * q * segments});
}

using enum Collective;

constexpr std::array kAlgorithms = {
    Algorithm{.collective = kAllreduce,
              .name = "ring",
              .title = "Segmented ring",
              .make = ring_allreduce,
              .cost = two_ring_phases,
              .pipelined = true},
    Algorithm{.collective = kAllreduce,
              .name = "binomial_tree",
              .title = "Binomial tree, up and down",
              .make = binomial_tree_allreduce,
              .cost = binomial_tree_cost,
              .chunks = one_chunk,
              .pipelined = true,
              .logarithmic = true,
              .position_independent = true},
    Algorithm{.collective = kAllreduce,
              .name = "double_tree",
              .title = "Double binary tree",
              .make = double_tree_allreduce,
              .cost = double_tree_cost,
              .chunks = two_chunks,
              .pipelined = true,
              .logarithmic = true},
    Algorithm{.collective = kAllreduce,
              .name = "recursive_doubling",
              .title = "Recursive doubling",
              .make = recursive_doubling_allreduce,
              .cost = recursive_doubling_cost,
              .chunks = one_chunk,
              .logarithmic = true,
              .position_independent = true},
    Algorithm{.collective = kAllreduce,
              .name = "halving_doubling",
              .title = "Recursive halving and doubling",
              .make = halving_doubling_allreduce,
              .cost = halving_doubling_cost,
              .supports = power_of_two,
              .logarithmic = true,
              .position_independent = true},
    Algorithm{.collective = kAllreduce,
              .name = "circulant",
              .title = "Circulant reduce-scatter and allgather",
              .make = circulant_allreduce,
              .cost = two_circulant_phases,
              .logarithmic = true},
    Algorithm{.collective = kBroadcast,
              .name = "binomial",
              .title = "Binomial tree",
              .make = binomial_broadcast,
              .cost = binomial_phase,
              .chunks = one_chunk,
              .pipelined = true,
              .logarithmic = true},
    Algorithm{.collective = kBroadcast,
              .name = "scatter_allgather",
              .title = "Binomial scatter, circulant allgather",
              .make = scatter_allgather_broadcast,
              .cost = scatter_allgather_cost,
              .logarithmic = true},
    Algorithm{.collective = kReduce,
              .name = "binomial",
              .title = "Binomial tree",
              .make = binomial_reduce,
              .cost = reducing_binomial_phase,
              .chunks = one_chunk,
              .pipelined = true,
              .logarithmic = true,
              .position_independent = true},
    Algorithm{.collective = kReduce,
              .name = "reduce_scatter_gather",
              .title = "Circulant reduce-scatter, binomial gather",
              .make = reduce_scatter_gather_reduce,
              .cost = reduce_scatter_gather_cost,
              .logarithmic = true},
    Algorithm{.collective = kAllgather,
              .name = "ring",
              .title = "Ring",
              .make = ring_allgather,
              .cost = ring_phase,
              .pipelined = true},
    Algorithm{.collective = kAllgather,
              .name = "bruck",
              .title = "Bruck's doubling",
              .make = bruck_allgather,
              .cost = circulant_phase,
              .logarithmic = true},
    Algorithm{.collective = kReduceScatter,
              .name = "ring",
              .title = "Ring",
              .make = ring_reduce_scatter,
              .cost = reducing_ring_phase,
              .pipelined = true},
    Algorithm{.collective = kReduceScatter,
              .name = "circulant",
              .title = "Circulant halving",
              .make = circulant_reduce_scatter,
              .cost = reducing_circulant_phase,
              .logarithmic = true},
    Algorithm{.collective = kGather,
              .name = "binomial",
              .title = "Binomial tree",
              .make = binomial_gather,
              .cost = binomial_gather_cost,
              .logarithmic = true},
    Algorithm{.collective = kGather,
              .name = "linear",
              .title = "Straight to the root",
              .make = linear_gather,
              .cost = linear_cost},
    Algorithm{.collective = kScatter,
              .name = "binomial",
              .title = "Binomial tree",
              .make = binomial_scatter,
              .cost = binomial_gather_cost,
              .logarithmic = true},
    Algorithm{.collective = kScatter,
              .name = "linear",
              .title = "Straight from the root",
              .make = linear_scatter,
              .cost = linear_cost},
    Algorithm{.collective = kAlltoall,
              .name = "pairwise",
              .title = "Pairwise exchange",
              .make = pairwise_alltoall,
              .cost = pairwise_cost,
              .chunks = two_chunks_per_rank},
    Algorithm{.collective = kBarrier,
              .name = "dissemination",
              .title = "Dissemination",
              .make = dissemination_barrier,
              .cost = dissemination_cost,
              .chunks = one_chunk,
              .logarithmic = true},
};

}  // namespace

std::string_view name(Collective collective) {
  return word_of(collective, kCollectiveNames);
}

Collective parse_collective(std::string_view text) {
  return parse_word<Collective>(text, "collective", kCollectiveNames);
}

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

int segments_for_size(const Algorithm& algorithm, int ranks, std::size_t bytes, std::size_t segment_bytes) {
  constexpr std::size_t kMaxSegments = 64;
  if (!algorithm.pipelined) return 1;
  const std::size_t chunk_bytes = bytes / static_cast<std::size_t>(algorithm.chunks(ranks));
  return static_cast<int>(std::clamp<std::size_t>((chunk_bytes + segment_bytes - 1) / segment_bytes, 1, kMaxSegments));
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  const auto found = std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](const Algorithm& algorithm) {
    return algorithm.collective == collective && algorithm.name == name;
  });
  return found == kAlgorithms.end() ? nullptr : &*found;
}

}  // namespace farandole
