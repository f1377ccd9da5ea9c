// SPDX-License-Identifier: Apache-2.0
// Methods: the ways of running a collective, one row each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "farandole/collectives/tuning.h"
#include "farandole/core/buffer.h"

namespace farandole {

struct Group;
struct MethodInputs;
struct SelectionQuery;
class Operation;

/// One way of running a collective. Its row stands in the file of its operation, and in the list of
/// communicator/methods.cpp, through which selection, tables, descriptors and messages go.
struct Method {
  std::string_view name;   ///< in settings, tables and messages; of schedules empty: their algorithm's is used
  std::uint8_t number;     ///< in compared descriptors; of schedules unused: their algorithm's index is
  std::string_view needs;  ///< of the communicator: "… needs <this>"
  MemoryKind memory = MemoryKind::kHost;  ///< that it works on
  /// Goes before all methods behind it in the list wherever it is available, unless the caller, a setting or a table
  /// says otherwise. Such methods need no model of their cost: each was measured to be faster than those behind it, at
  /// least for vectors for which it `is_cheapest`.
  bool is_preferred = false;
  bool (*is_cheapest)(const SelectionQuery& query) = nullptr;  ///< for which it goes before them; null: for all
  bool compares_calls = false;                                 ///< by itself, so that no comparison goes before it
  bool sums_where_it_reads = false;                            ///< contributions are read as they are: no sum travels
  bool created_before_comparison = false;                      ///< else once the ranks have compared their calls
  bool (*supports)(Collective collective);
  /// Whether ranks that are placed like these have what it needs.
  bool (*fits)(const TuningShape& shape);
  /// Whether it can run in this communicator. @param from_table  a table says so, and neither caller nor setting
  bool (*is_available)(const SelectionQuery& query, bool from_table);
  /// Takes the collective's place in the order of calls; null: none is needed. Called in that order, before ranks
  /// compare the call.
  void (*announce)(const MethodInputs& inputs) = nullptr;
  std::unique_ptr<Operation> (*make)(const MethodInputs& inputs);
  /// Why it was chosen for a vector of so many bytes, and how it goes; null: the cost model says that.
  std::string (*explain)(Collective collective, std::size_t bytes, const Group& group) = nullptr;
};

/// All methods, preferred ones first.
std::span<const Method* const> methods();
/// Null if no method of that name runs the collective on such memory.
const Method* find_method(Collective collective, std::string_view name, MemoryKind memory);
/// Schedules, which run everything.
const Method& schedule_method(MemoryKind memory);

}  // namespace farandole
