// SPDX-License-Identifier: Apache-2.0
// The phases of a hierarchical plan as calls, for all that run such plans.
#pragma once

#include <cstddef>

#include "messages/hierarchical_plan.h"
#include "operation/call.h"
#include "operation/group.h"
#include "selection/selection.h"

namespace farandole {

/// Where the places of a plan lie.
struct PlanMemory {
  const void* input = nullptr;
  void* output = nullptr;
  void* scratch = nullptr;
  std::size_t element_bytes = 1;
  /// Null for a place that is none.
  std::byte* at(const PlanPlace& place) const;
};

/// What a call of a communicator of `size` ranks asks of a plan: its collective, root, and elements. How it is carried
/// and sliced is for the caller to add.
HierarchicalQuery query_of(const Call& call, int size);

/// A phase as a call, on memory where that of the whole call is. An average is a sum, scaled once all has been added.
/// @param whole  the call that the phase is a part of   @returns  refers to `phase`
Call call_of(const HierarchicalPhase& phase, const Call& whole, const PlanMemory& memory);

/// The cheapest schedule among ranks of different hosts that lets no byte cross to a host more often than once.
/// @param across  at least two ranks, this one among them   @param bytes  of the whole vector
Selection select_across(const Group& across, Collective collective, std::size_t bytes);

}  // namespace farandole
