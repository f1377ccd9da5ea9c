// SPDX-License-Identifier: Apache-2.0
// What makes a call invalid whatever the other ranks do.
#pragma once

#include "device/device_slot.h"
#include "operation/prepared_call.h"

namespace farandole {

/// @param rank  the caller's, of `size`   @param devices  of the communicator; opened by a call on device memory
/// @throws InvalidArgument  the call can not work
void validate(const PreparedCall& prepared, int rank, int size, DeviceSlot& devices);

}  // namespace farandole
