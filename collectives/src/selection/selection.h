// SPDX-License-Identifier: Apache-2.0
// Selection: which algorithm runs, as a pure function of what all ranks know.
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

/// What runs.
struct Selection {
  const Method* method = nullptr;
  const Algorithm* algorithm = nullptr;  ///< of a schedule over messages, else null
  int segments = 1;
  std::string_view name() const { return algorithm != nullptr ? algorithm->name : method->name; }
  static Selection schedule(const Algorithm& algorithm, int segments, MemoryKind memory = MemoryKind::kHost);
};

/// Of a group of messages between devices, for the choice of algorithms: an order of magnitude, measured nowhere.
inline constexpr LinkCost kDeviceLink{.latency_us = 15.0, .us_per_byte = 1e-5};

/// Of a copy from memory to memory, an order of magnitude.
inline constexpr double kCopyUsPerByte = 1e-4;

/// More than any entry of a table reaches.
inline constexpr std::size_t kUnknownBytes = std::numeric_limits<std::size_t>::max();

/// What is to be chosen for.
struct SelectionQuery {
  Collective collective = Collective::kAllreduce;
  std::size_t bytes = 0;  ///< of the whole vector
  int size = 1;
  LinkCost link;
  bool shares_memory = false;          ///< all ranks live on one host and can reach each other's memory
  int hosts = 0;                       ///< several; of calls on host memory only if ranks share it inside each; else 0
  std::string_view forced;             ///< by the caller; empty: the setting's
  int segments = 0;                    ///< by the caller; 0: from the size
  const TuningTable* table = nullptr;  ///< measured on ranks like these, if there is one
  MemoryKind memory = MemoryKind::kHost;
  bool is_part_of_job = false;  ///< the job has ranks that are no members
  bool compares = true;         ///< the ranks compare what they call, in a round of its own or with short vectors
  bool vendor_agrees = true;    ///< of the call's type and reduction: vendor_agrees()
};

/// Forced by the caller, else by the setting, else what the table has measured, else the first preferred method that is
/// available, else the cheapest schedule by the cost model.
/// A setting that can not hold here but may elsewhere in the job is passed over.
/// @throws InvalidArgument  the forced algorithm does not exist, or can not run in this communicator
Selection select(const SelectionQuery& query, const Settings& settings);

/// What the table has for this query, if it has something and that can run here.
const TuningTable::Entry* measured_entry(const SelectionQuery& query);

/// Vectors whose selection needs no search, unless the caller wants something else.
struct ShortVectors {
  std::size_t below_bytes = 0;
  Selection selection;  ///< of all that have fewer bytes
};
/// @param query  for any size
ShortVectors select_short_vectors(const SelectionQuery& query, const Settings& settings);

/// One candidate of the cost model.
struct Candidate {
  const Algorithm* algorithm;
  int segments;
  double predicted_us;
};
/// All algorithms that support the size, cheapest first.
std::vector<Candidate> candidates(const SelectionQuery& query, const Settings& settings);

/// Predicted time: rounds × (latency + bytes per round × cost per byte sent and reduced) + a share of the latency per
/// message.
double predict_us(const Algorithm& algorithm, int segments, const SelectionQuery& query);

/// Of the cheapest of them without segments: of a vector that is too short for segments to pay.
double cheapest_schedule_us(const SelectionQuery& query);

/// "there is no algorithm 'rung' (did you mean 'ring'?); it must be one of …", with what this collective knows.
std::string describe_no_such_algorithm(Collective collective, std::string_view wanted);

/// The setting that forces an algorithm of this collective; "auto" where there is none.
const std::string& forced_algorithm(Collective collective, const Settings& settings);

}  // namespace farandole
