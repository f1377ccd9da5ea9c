// SPDX-License-Identifier: Apache-2.0
// Which device a rank uses: what FARANDOLE_DEVICE means.
#pragma once

#include <string_view>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// @throws InvalidArgument  the text is neither `auto` nor numbers with commas between; says so
void check_device_setting(std::string_view setting);

/// The ordinal of the device of a rank. Pure. `auto`: the only one that the process sees, as where a launcher shows
/// each process one; else the one with the number of the local rank.
/// @param local_rank, local_size  among the ranks of the host   @param device_count  that this process sees
/// @throws InvalidArgument  as check_device_setting; or a list has no entry for this rank, or there is no device of
/// that number; says both numbers
int device_of_rank(std::string_view setting, int local_rank, int local_size, int device_count);

}  // namespace FARANDOLE_API
