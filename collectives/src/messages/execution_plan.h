// SPDX-License-Identifier: Apache-2.0
// Execution plans: the memory that a scheduled collective reads and writes, decided before any memory is touched.
#pragma once

#include <cstddef>
#include <memory>

#include "operation/call.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "selection/selection.h"

namespace farandole {

/// Plan that runs a schedule from the caller's input to the caller's output:
///
/// 1. Prologue, if needed: copies the input to `prologue_target`, multiplied by the call's prescale.
/// 2. The schedule runs on the layouts `input` and `data`.
/// 3. Epilogue, if `delivered_bytes` > 0: copies the result from Memory::kFullVector to the output.
///
/// Used by ScheduledCollective for host memory and by DevicePlan for device memory.
struct ExecutionPlan {
  enum class Memory {
    kInput,   ///< the caller's input
    kOutput,  ///< the caller's output
    kStaged,  ///< allocated for the operation: a copy of the input, if the input is scaled or the output overwrites the
              ///< input
    kFullVector,  ///< allocated for the operation: the whole vector, where the schedule writes pieces that are not in
                  ///< the output
  };
  /// Location of a layout: the memory begins at byte `first_byte` of the layout.
  struct Location {
    Memory memory = Memory::kInput;
    std::size_t first_byte = 0;
  };

  std::shared_ptr<const PreparedSchedule> prepared;
  Offsets offsets;  ///< boundaries of the pieces, in elements
  bool has_prologue = false;
  Memory prologue_target = Memory::kStaged;
  Location input, data;
  int first_result = 0, result_pieces = 0;              ///< as in Execution
  MemorySpace space;                                    ///< of the call's buffers and of the operation's memory
  std::size_t staged_bytes = 0, full_vector_bytes = 0;  ///< sizes of kStaged and kFullVector; 0 if not needed
  std::size_t result_byte = 0, delivered_bytes = 0;  ///< the part of kFullVector that the epilogue copies to the output
};

/// Plans this rank's part of a call. Pure: reads no buffers, only the call's counts.
/// @param selection  names a schedule   @param call  a valid call
ExecutionPlan plan_execution(const Call& call, const Selection& selection, int rank, int size);

}  // namespace farandole
