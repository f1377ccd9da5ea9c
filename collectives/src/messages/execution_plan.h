// SPDX-License-Identifier: Apache-2.0
// Plans: what a collective over messages does with memory, before any of it is touched.
#pragma once

#include <cstddef>
#include <memory>

#include "operation/call.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "selection/selection.h"

namespace farandole {

/// From the caller's input to the caller's output: the prologue copies the input, scaled; the schedule runs; the
/// epilogue copies the result to the output.
struct ExecutionPlan {
  enum class Memory {
    kInput,   ///< the caller's
    kOutput,  ///< the caller's
    kStaged,  ///< the operation's, for the input: it is scaled, or the output overwrites it
    kWhole,   ///< the operation's, for the whole vector: the output holds a part of it, or nothing
  };
  /// Where the layout lies. `first_byte`: of the layout, at the memory's begin.
  struct Location {
    Memory memory = Memory::kInput;
    std::size_t first_byte = 0;
  };

  std::shared_ptr<const PreparedSchedule> prepared;
  Offsets offsets;  ///< of the pieces, in elements
  bool has_prologue = false;
  Memory prologue_target = Memory::kStaged;
  Location input, data;
  int first_result = 0, result_pieces = 0;           ///< see Execution
  MemorySpace space;                                 ///< of the call's memory, and so of the operation's
  std::size_t staged_bytes = 0, whole_bytes = 0;     ///< memory of the operation
  std::size_t result_byte = 0, delivered_bytes = 0;  ///< the part of kWhole that the epilogue copies to the output
};

/// Pure: reads no memory of the call but its counts.
/// @param selection  of a schedule. @param call  is valid
ExecutionPlan plan_execution(const Call& call, const Selection& selection, int rank, int size);

}  // namespace farandole
