// SPDX-License-Identifier: Apache-2.0
// Validation of calls on one rank.
#pragma once

#include "device/device_slot.h"
#include "operation/call.h"

namespace farandole {

/// Checks a call for errors that this rank can detect without its peers: in options, counts, types, addresses, and
/// overlapping memory.
/// @param rank  this rank, of `size` ranks   @param devices  devices of the communicator; a call on device memory opens
/// this rank's device   @param may_be_captured  the stream may be captured into a graph   @throws InvalidArgument
void validate(const PreparedCall& prepared, int rank, int size, DeviceSlot& devices, bool may_be_captured = false);

}  // namespace farandole
