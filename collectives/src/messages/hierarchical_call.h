// SPDX-License-Identifier: Apache-2.0
// Turns the phases of a hierarchical plan into calls. Shared by the runners for host memory and for device memory.
#pragma once

#include <cstddef>

#include "messages/hierarchical_plan.h"
#include "operation/call.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

/// Addresses of the memory that a plan's places (PlanPlace) refer to.
struct PlanMemory {
  const void* input = nullptr;
  void* output = nullptr;
  void* scratch = nullptr;
  std::size_t element_bytes = 1;
  /// Address of a place; null for PlanPlace::Memory::kNone.
  std::byte* at(const PlanPlace& place) const;
};

/// Returns the query for a call of a communicator of `size` ranks: its collective, root and counts. The caller sets
/// carriers, slices and granularities.
HierarchicalQuery query_of(const Call& call, int size);

/// Returns a phase as a call. Its buffers lie in the same memory space as the whole call's buffers. In an average each
/// phase sums, and the phase that adds the last terms scales.
/// @param whole  the collective that the phase is part of   @returns  a call that refers to `phase`, which must outlive
/// it
Call call_of(const HierarchicalPhase& phase, const Call& whole, const PlanMemory& memory);

/// Returns the cheapest schedule for ranks on different hosts that sends each byte to a host at most once.
/// @param across  at least two ranks, including this rank   @param bytes  size of the whole vector
Selection select_across(const Group& across, Collective collective, std::size_t bytes);

}  // namespace farandole
