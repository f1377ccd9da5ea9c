// SPDX-License-Identifier: Apache-2.0
// The algorithms over point-to-point messages, each a pure function, and the table that lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "farandole/collectives/schedule.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

enum class Collective : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kReduce,
  kAllgather,
  kReduceScatter,
  kGather,
  kScatter,
  kAlltoall,
  kBarrier,
};
inline constexpr int kCollectiveCount = 9;
std::string_view name(Collective collective);
/// @throws InvalidArgument  with the valid names
Collective parse_collective(std::string_view text);
/// True if ranks have a root in it: broadcast, reduce, gather, scatter.
inline bool is_rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}
/// True if it combines values: allreduce, reduce, reduce_scatter.
inline bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

/// What an algorithm costs among `size` ranks with `segments` segments; checked against its schedules by the verifier.
struct AlgorithmCost {
  int rounds = 0;
  std::int64_t messages = 0;        ///< sent by all ranks together
  std::int64_t pieces_sent = 0;     ///< by all ranks together; a piece is one segment of one chunk
  std::int64_t pieces_reduced = 0;  ///< by all ranks together
};

/// One algorithm.
struct Algorithm {
  Collective collective;
  std::string_view name;  ///< "ring", "binomial_tree", …
  std::string_view title;
  Schedule (*make)(const Place& place, int segments);
  /// Formula of docs/algorithms.md.
  AlgorithmCost (*cost)(const Place& place, int segments);
  int (*chunks)(int size) = [](int size) { return size; };  ///< that a schedule cuts the vector into: one per rank
  bool (*supports)(int size) = [](int) { return true; };
  bool pipelined = false;             ///< more than one segment is worthwhile
  bool logarithmic = false;           ///< few steps: verified to 4096 ranks instead of 256
  bool position_independent = false;  ///< every element is associated alike, as a binary tree over ranks

  /// Bytes of one piece, of a vector as `--bytes` of farandole-bench counts it. An alltoall's schedule has chunks for
  /// the input and as many for the output.
  double piece_bytes(int size, int segments, double vector_bytes) const {
    const int of_vector = collective == Collective::kAlltoall ? chunks(size) / 2 : chunks(size);
    return vector_bytes / (static_cast<double>(of_vector) * segments);
  }
};

/// All algorithms, grouped by collective; the first one of each collective supports every size.
std::span<const Algorithm> algorithms();
/// Null if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

/// What a call, a setting and a table of measured choices may name: the collective's algorithms, then the methods that
/// are no schedules, "shared_memory" and others.
std::vector<std::string_view> algorithm_names(Collective collective);

/// How many segments a chunk is cut into, so that one has about `segment_bytes` bytes; 1 where more are not worthwhile.
int segments_for_size(const Algorithm& algorithm, int ranks, std::size_t bytes, std::size_t segment_bytes);

// One file per algorithm: collectives/src/<function>.cpp without the verb's order, e.g. allreduce_ring.cpp.
Schedule ring_allreduce(const Place& at, int segments);
Schedule binomial_tree_allreduce(const Place& at, int segments);
Schedule double_tree_allreduce(const Place& at, int segments);
Schedule recursive_doubling_allreduce(const Place& at, int segments);
Schedule halving_doubling_allreduce(const Place& at, int segments);
Schedule circulant_allreduce(const Place& at, int segments);
Schedule binomial_broadcast(const Place& at, int segments);
Schedule scatter_allgather_broadcast(const Place& at, int segments);
Schedule binomial_reduce(const Place& at, int segments);
Schedule reduce_scatter_gather_reduce(const Place& at, int segments);
Schedule ring_allgather(const Place& at, int segments);
Schedule bruck_allgather(const Place& at, int segments);
Schedule ring_reduce_scatter(const Place& at, int segments);
Schedule circulant_reduce_scatter(const Place& at, int segments);
Schedule binomial_gather(const Place& at, int segments);
Schedule linear_gather(const Place& at, int segments);
Schedule binomial_scatter(const Place& at, int segments);
Schedule linear_scatter(const Place& at, int segments);
Schedule pairwise_alltoall(const Place& at, int segments);
Schedule dissemination_barrier(const Place& at, int segments);

}  // namespace FARANDOLE_API
