// SPDX-License-Identifier: Apache-2.0
// The table of the algorithms that run collectives by point-to-point messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "farandole/collectives/schedule.h"
#include "farandole/core/collective.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Cost of running an algorithm once, counted over all ranks together except for `rounds`.
struct AlgorithmCost {
  int rounds = 0;
  std::int64_t messages = 0;
  std::int64_t pieces_sent = 0;  ///< a piece is one segment of one chunk
  std::int64_t pieces_reduced = 0;
};

/// An algorithm that runs a collective by point-to-point messages: a row of the table `algorithms()`.
///
/// Use the table to list algorithms, to look at their schedules, or to predict their cost. For example, the messages
/// of a ring allreduce of 8 ranks, and the schedule of rank 3:
///
///     const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
///     const Place place{.rank = 3, .size = 8, .root = 0};
///     std::int64_t messages = ring.cost(place, /*segments=*/4).messages;
///     Schedule schedule = ring.make(place, /*segments=*/4);
///     for (std::size_t i = 0; i < schedule.steps.size(); ++i) puts(describe(schedule, int(i)).c_str());
///
/// To run a collective by an algorithm, pass the algorithm's name to the collective
/// (`farandole/collectives/communicator.h`). P is the number of ranks in the comments below.
struct Algorithm {
  Collective collective;
  std::string_view name;   ///< in calls, settings and tables: "ring", "binomial_tree", …; unique within a collective
  std::string_view title;  ///< for people: "Segmented ring"
  /// Makes the schedule of the rank `place.rank`. Pure: the same arguments give the same schedule.
  Schedule (*make)(const Place& place, int segments);
  /// Formula of docs/algorithms.md. The verifier compares the schedules with this formula. Depends on the root of
  /// `place`, but not on its rank.
  AlgorithmCost (*cost)(const Place& place, int segments);
  /// Number of chunks into which a schedule for `size` ranks cuts the vector. Default: P.
  int (*chunks)(int size) = [](int size) { return size; };
  /// True if the algorithm works with `size` ranks. Default: always.
  bool (*supports)(int size) = [](int) { return true; };
  bool pipelined = false;    ///< gains by cutting chunks into several segments
  bool logarithmic = false;  ///< O(log P) steps per rank: tests verify up to 4096 ranks instead of 256
  /// Combines the contributions to every element in the same order, along one binary tree over the ranks: the bits of a
  /// sum are independent of the element's position in the vector.
  bool position_independent = false;

  /// Bytes of one piece of a vector of `vector_bytes`, as counted by `--bytes` of farandole-bench: the input alone in
  /// an alltoall, whose schedule has as many chunks for the output.
  double piece_bytes(int size, int segments, double vector_bytes) const {
    const int of_vector = collective == Collective::kAlltoall ? chunks(size) / 2 : chunks(size);
    return vector_bytes / (static_cast<double>(of_vector) * segments);
  }
};

/// All algorithms, grouped by collective in the order of `Collective`. The first algorithm of each collective supports
/// every size. Thread-safe; valid until the process ends.
std::span<const Algorithm> algorithms();
/// Algorithm of that name; null if the collective has none.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

/// Names that a call, a setting and a table of measured choices accept for this collective: its algorithms, then the
/// methods that do not run a schedule, such as "shared_memory".
std::vector<std::string_view> algorithm_names(Collective collective);

/// Most segments per chunk that a call or a table of measured choices may ask for: a schedule takes memory for each.
inline constexpr int kMaxSegments = 1024;

/// Number of segments per chunk, so that a segment has about `segment_bytes` bytes: 1 … 64; 1 if the algorithm is not
/// pipelined. @param bytes  of the whole vector
int segments_for_size(const Algorithm& algorithm, int ranks, std::size_t bytes, std::size_t segment_bytes);

}  // namespace FARANDOLE_API
