// SPDX-License-Identifier: Apache-2.0
// Selects the device of each rank: from WorldOptions::devices, or else from FARANDOLE_DEVICE.
#pragma once

#include <cstdint>
#include <string_view>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"

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

/// Devices that the processes of a host divide among themselves (WorldOptions::replica_for_each_device).
struct DevicesToDivide {
  std::int32_t count = 0;    ///< 0: none
  std::uint64_t digest = 0;  ///< processes of a host divide the devices if they have the same digest
};
/// Returns the devices that this process may use: those that FARANDOLE_DEVICE lists, or all that the process sees.
/// Loads the driver.
DevicesToDivide devices_to_divide(const Settings& settings);

/// A part of the devices: those with the numbers first … first + count - 1.
struct DeviceShare {
  int first = 0, count = 0;
};
/// Returns the part of one of `processes` that divide `devices` devices: 8 devices are divided among 3 processes as 0
/// 1, 2 3 4, 5 6 7. Pure.
/// @param index  of the process, 0 … processes - 1
DeviceShare device_share(int devices, int processes, int index);

}  // namespace FARANDOLE_API
