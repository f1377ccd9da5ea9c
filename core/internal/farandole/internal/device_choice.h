// SPDX-License-Identifier: Apache-2.0
// Which device a rank uses: what FARANDOLE_DEVICE means.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// @throws InvalidArgument  the text is neither `auto` nor numbers with commas between; says so
void check_device_setting(std::string_view setting);

/// The ordinal of the device of a rank. `auto` deals the devices out to the ranks of a host; where a launcher shows
/// each process one device only, that is 0. Whether there is a device of that number says DeviceRuntime::open.
/// @param local_rank  among the ranks of the host
/// @param device_count  that this process sees, at least 1
/// @throws InvalidArgument  as check_device_setting; or a list has no entry for this rank
int device_of_rank(std::string_view setting, int local_rank, int device_count);

}  // namespace FARANDOLE_API
