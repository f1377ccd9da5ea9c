// SPDX-License-Identifier: Apache-2.0
// Selection of the algorithm that runs a collective: a pure function of facts that are the same on all ranks.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "farandole/collectives/tuning.h"
#include "farandole/core/settings.h"
#include "farandole/sdk/transport.h"
#include "selection/method.h"

namespace farandole {

/// The method that runs a collective and, if the method runs a schedule, the schedule's algorithm.
struct Selection {
  const Method* method = nullptr;
  const Algorithm* algorithm = nullptr;  ///< null unless the method runs a schedule
  int segments = 1;                      ///< per chunk of the schedule
  std::string_view name() const { return algorithm != nullptr ? algorithm->name : method->name; }
  static Selection schedule(const Algorithm& algorithm, int segments, MemoryKind memory = MemoryKind::kHost);
};

/// Cost of one group of messages between devices, for the cost model: an order of magnitude, not measured.
inline constexpr LinkCost kDeviceLink{.latency_us = 15.0, .us_per_byte = 1e-5};

/// Cost of a copy from memory to memory: an order of magnitude.
inline constexpr double kCopyUsPerByte = 1e-4;

/// `bytes` of a vector whose size differs between ranks: larger than any table entry.
inline constexpr std::size_t kUnknownBytes = std::numeric_limits<std::size_t>::max();

/// A collective, its communicator, and the caller's choices (`forced`, `segments`). All other members are the same on
/// all ranks.
struct SelectionQuery {
  Collective collective = Collective::kAllreduce;
  std::size_t bytes = 0;  ///< size of the whole vector
  int size = 1;           ///< ranks of the communicator
  LinkCost link;
  bool shares_memory = false;  ///< all ranks are on one host and can reach each other's memory
  /// Number of hosts; 0 if there is one host. For host memory also 0 if the ranks of each host do not share memory.
  int hosts = 0;
  std::string_view forced;             ///< algorithm that the caller names; empty: a setting may name one
  int segments = 0;                    ///< segments per chunk that the caller names; 0: computed from the size
  const TuningTable* table = nullptr;  ///< measured on communicators of this shape; null if there is none
  MemoryKind memory = MemoryKind::kHost;
  bool is_part_of_job = false;  ///< some ranks of the job are not members of the communicator
  bool compares = true;         ///< the ranks compare their calls, in separate rounds or along with short vectors
  bool vendor_agrees = true;    ///< vendor_agrees() of the call's type and reduction
};

/// Selects the method and the algorithm of a collective, by the first of these rules that applies: the algorithm that
/// the caller names; the algorithm that a setting names; the entry of the table; the first available preferred method;
/// the cheapest schedule by the cost model. A setting that cannot apply to this query, but may apply to other queries
/// of the job, is skipped.
/// @throws InvalidArgument  the named algorithm does not exist, or cannot run in this communicator
Selection select(const SelectionQuery& query, const Settings& settings);

/// Entry of the table for this query; null if the table has no entry, or if the entry's algorithm cannot run here.
const TuningTable::Entry* measured_entry(const SelectionQuery& query);

/// Range of short vectors that all have the same selection. A call with such a vector skips the search, unless the
/// caller names an algorithm or segments.
struct ShortVectors {
  std::size_t below_bytes = 0;  ///< the selection is valid for all vectors of fewer bytes
  Selection selection;
};
/// Returns the range of short vectors with the same selection; `below_bytes` is 0 if no such range exists.
/// @param query  `query.bytes` must be 0
ShortVectors select_short_vectors(const SelectionQuery& query, const Settings& settings);

/// One candidate of the cost model.
struct Candidate {
  const Algorithm* algorithm;
  int segments;
  double predicted_us;
};
/// All algorithms that support the number of ranks, in ascending order of predicted time.
std::vector<Candidate> candidates(const SelectionQuery& query, const Settings& settings);

/// Time that the cost model predicts, in microseconds: rounds × (latency + bytes per round × cost per byte sent and
/// reduced) + messages per rank × a share of the latency.
double predict_us(const Algorithm& algorithm, int segments, const SelectionQuery& query);

/// Predicted time of the cheapest algorithm with one segment per chunk, in microseconds. For vectors too short to gain
/// from several segments.
double cheapest_schedule_us(const SelectionQuery& query);

/// "there is no algorithm 'rung' (did you mean 'ring'?); it must be one of …", with the names for this collective.
std::string describe_no_such_algorithm(Collective collective, std::string_view wanted);

/// Value of the setting that forces an algorithm of this collective; "auto" if the collective has no such setting.
const std::string& forced_algorithm(Collective collective, const Settings& settings);

}  // namespace farandole
