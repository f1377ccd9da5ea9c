// SPDX-License-Identifier: Apache-2.0
// Table of the algorithms that run collectives by point-to-point messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "farandole/collectives/schedule.h"
#include "farandole/core/collective.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Cost of running an algorithm once. All counts but `rounds` are sums over all ranks.
struct AlgorithmCost {
  int rounds = 0;
  std::int64_t messages = 0;
  std::int64_t pieces_sent = 0;  ///< a piece is one segment of one chunk
  std::int64_t pieces_reduced = 0;
};

/// An algorithm that runs a collective by point-to-point messages: a row of the table `algorithms()`.
///
/// Use the table to list algorithms, to print their schedules, or to predict their cost. For example, the number of
/// messages of a ring allreduce among 8 ranks, and the schedule of rank 3:
///
///     const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
///     const Place place{.rank = 3, .size = 8, .root = 0};
///     std::int64_t messages = ring.cost(place, /*segments=*/4).messages;
///     Schedule schedule = ring.make(place, /*segments=*/4);
///     for (std::size_t i = 0; i < schedule.steps.size(); ++i) puts(describe(schedule, int(i)).c_str());
///
/// To run a collective with an algorithm, pass the algorithm's name in `CallOptions::algorithm`
/// (`farandole/collectives/communicator.h`). In the comments below, P is the number of ranks.
struct Algorithm {
  Collective collective;
  std::string_view name;   ///< in calls, settings and tables: "ring", "binomial_tree", …; unique within a collective
  std::string_view title;  ///< for people: "Segmented ring"
  /// Makes the schedule of the rank `place.rank`. Pure: the same arguments give the same schedule.
  Schedule (*make)(const Place& place, int segments);
  /// Cost by the formula in docs/algorithms.md, which the verifier compares with the schedules. Depends on `place.size`
  /// and `place.root`, not on `place.rank`.
  AlgorithmCost (*cost)(const Place& place, int segments);
  /// Number of chunks into which a schedule for `size` ranks cuts the vector. Default: P.
  int (*chunks)(int size) = [](int size) { return size; };
  /// True if the algorithm works with `size` ranks. Default: always.
  bool (*supports)(int size) = [](int) { return true; };
  bool pipelined = false;    ///< is faster if chunks are cut into several segments
  bool logarithmic = false;  ///< O(log P) steps per rank, so tests verify up to 4096 ranks instead of 256
  /// True if the contributions to every element are combined in the same order, along one binary tree over the ranks.
  /// The bits of a sum are then independent of the element's position in the vector.
  bool position_independent = false;

  /// Bytes of one piece of a vector of `vector_bytes`, counted as `--bytes` of farandole-bench does. For an alltoall
  /// that is the input only, which has half of the schedule's chunks; the output has the other half.
  double piece_bytes(int size, int segments, double vector_bytes) const {
    const int of_vector = collective == Collective::kAlltoall ? chunks(size) / 2 : chunks(size);
    return vector_bytes / (static_cast<double>(of_vector) * segments);
  }
};

/// All algorithms, grouped by collective in the order of `Collective`. The first algorithm of each collective supports
/// every size. Thread-safe; valid until the process ends.
std::span<const Algorithm> algorithms();
/// Algorithm of that name; null if the collective has no such algorithm.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

/// Names that calls, settings and tuning tables accept for this collective: its algorithms, then the methods that run
/// without a schedule, such as "shared_memory".
std::vector<std::string_view> algorithm_names(Collective collective);

/// Maximum number of segments per chunk in a call or a tuning table. The limit exists because a schedule needs memory
/// for every segment.
inline constexpr int kMaxSegments = 1024;

/// Returns the number of segments per chunk (1 … 64) with which a segment has about `segment_bytes` bytes; 1 if the
/// algorithm is not pipelined. @param bytes  size of the whole vector
int segments_for_size(const Algorithm& algorithm, int ranks, std::size_t bytes, std::size_t segment_bytes);

}  // namespace FARANDOLE_API
