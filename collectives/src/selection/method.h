// SPDX-License-Identifier: Apache-2.0
// Methods: ways of running a collective, such as a schedule over messages, or shared memory.
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

/// One way of running a collective. To add a method, write its row in the file of its operation and add the row to the
/// list in communicator/communicator_state.cpp, which selection, tuning tables, compared descriptors and messages use.
///
/// Two methods run schedules, one on host memory and one on device memory. They have no name of their own: users name
/// the schedule's algorithm instead.
struct Method {
  std::string_view name;   ///< in settings, tables and messages; empty for schedules
  std::uint8_t number;     ///< in compared descriptors; unused for schedules: there the algorithm's index
  std::string_view needs;  ///< requirement on the communicator, as the end of the message "… needs <this>"
  MemoryKind memory = MemoryKind::kHost;  ///< kind of memory on which the method works
  /// True: if this method is available, selection takes it before all later methods of the list, unless the caller, a
  /// setting or a table decides otherwise. A preferred method has no cost model: it was measured to be faster than the
  /// later methods, at least for queries for which `is_cheapest` is true.
  bool is_preferred = false;
  /// True for queries for which a preferred method is taken first. Null: for all queries.
  bool (*is_cheapest)(const SelectionQuery& query) = nullptr;
  bool compares_calls = false;         ///< the operation compares the ranks' calls itself; no comparison runs before it
  bool sends_no_partial_sums = false;  ///< ranks reduce each other's inputs directly, so no partial sum travels
  bool created_before_comparison = false;  ///< make the operation before the ranks compare their calls, not after
  bool (*supports)(Collective collective);
  /// True if communicators of this shape meet the requirements of the method.
  bool (*fits)(const TuningShape& shape);
  /// True if the method can run the query. @param from_table  a table names the method; false: the caller, a setting or
  /// Farandole's own choice
  bool (*is_available)(const SelectionQuery& query, bool from_table);
  /// Reserves the collective's place in the order of calls. Called in the order of calls, before the ranks compare the
  /// call. Null: the method needs no place.
  void (*announce)(const MethodInputs& inputs) = nullptr;
  std::unique_ptr<Operation> (*make)(const MethodInputs& inputs);
  /// Text for people: why the method was chosen for a vector of `bytes`, and how it runs. Null: only the cost model's
  /// text is shown.
  std::string (*explain)(Collective collective, std::size_t bytes, const Group& group) = nullptr;
};

/// All methods, preferred methods first.
std::span<const Method* const> methods();
/// Method of that name for the collective on this kind of memory; null if no such method exists.
const Method* find_method(Collective collective, std::string_view name, MemoryKind memory);
/// The method that runs schedules. It supports every collective.
const Method& schedule_method(MemoryKind memory);

}  // namespace farandole
