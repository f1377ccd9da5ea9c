// SPDX-License-Identifier: Apache-2.0
// Selects the device of each rank: from WorldOptions::devices, or else from FARANDOLE_DEVICE.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// @throws InvalidArgument  `setting` is neither `auto` nor a list of numbers separated by commas
void check_device_setting(std::string_view setting);

/// Returns the ordinal of the device of a rank. Pure. `auto`: the only device, if the process sees a single device, as
/// some launchers arrange; else the device whose number is the local rank. A list has an ordinal for each local rank; a
/// list of one ordinal holds for all ranks.
/// @param local_rank, local_size  among the ranks of the host
/// @param device_count  number of devices that this process sees
/// @throws InvalidArgument  as check_device_setting; or the list has no entry for this rank, or no device has the
/// number. The message has both numbers.
int device_of_rank(std::string_view setting, int local_rank, int local_size, int device_count);

/// Checks a device that the program has chosen (WorldOptions::devices). Pure. Returns its ordinal.
/// @throws InvalidArgument  no device has the number
int checked_device(int chosen, int replica, int device_count);

}  // namespace FARANDOLE_API
