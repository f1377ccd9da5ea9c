// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/digest.h"
#include "farandole/sdk/device.h"

namespace farandole {

namespace {

constexpr std::string_view kAutomatic = "auto";
/// Number of ordinals that fit in the 16 bits of MemorySpace.
constexpr int kMaxDevices = 1 << 16;

std::vector<int> parse_ordinals(std::string_view setting) {
  std::vector<int> ordinals;
  for (std::size_t begin = 0; begin <= setting.size();) {
    const std::size_t end = std::min(setting.find(',', begin), setting.size());
    int ordinal = -1;
    const auto [read, error] = std::from_chars(setting.data() + begin, setting.data() + end, ordinal);
    if (error != std::errc{} || read != setting.data() + end || ordinal < 0 || ordinal >= kMaxDevices) {
      throw InvalidArgument(
          fmt::format("FARANDOLE_DEVICE is '{}'; it must be auto, the number of a device, or a list such as 0,2,1 with "
                      "one number for each rank of the host.",
                      setting));
    }
    ordinals.push_back(ordinal);
    begin = end + 1;
  }
  return ordinals;
}

}  // namespace

void check_device_setting(std::string_view setting) {
  if (setting != kAutomatic) parse_ordinals(setting);
}

int device_of_rank(std::string_view setting, int local_rank, int local_size, int device_count) {
  if (setting == kAutomatic) {
    if (device_count == 1 || local_rank < device_count) return device_count == 1 ? 0 : local_rank;
    throw InvalidArgument(
        fmt::format("this host has {} ranks and {} devices, so that there is none for local rank {}; start one rank "
                    "for each device, or say with FARANDOLE_DEVICE which rank uses which",
                    local_size, device_count, local_rank));
  }
  const std::vector<int> ordinals = parse_ordinals(setting);
  const auto entry = ordinals.size() == 1 ? 0 : static_cast<std::size_t>(local_rank);
  if (entry >= ordinals.size()) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_DEVICE is '{}', which names devices for {} ranks, but local rank {} asks for one; name "
                    "one for each rank of the host, or set auto.",
                    setting, ordinals.size(), local_rank));
  }
  if (ordinals[entry] >= device_count) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_DEVICE is '{}', which gives local rank {} device {}, but this process sees {}", setting,
                    local_rank, ordinals[entry], device_count));
  }
  return ordinals[entry];
}

int checked_device(int chosen, int replica, int device_count) {
  if (chosen >= 0 && chosen < device_count) return chosen;
  throw InvalidArgument(
      fmt::format("WorldOptions::devices gives replica {} device {}, but this process sees {}: 0 … {}", replica, chosen,
                  device_count, device_count - 1));
}

DevicesToDivide devices_to_divide(const Settings& settings) {
  DeviceRuntime* const runtime = device_runtime(settings).runtime;
  if (runtime == nullptr) return {};
  Digest digest;
  if (const std::string& setting = settings.devices.ordinals; setting != kAutomatic) {
    return {static_cast<std::int32_t>(parse_ordinals(setting).size()), digest.add(setting).value()};
  }
  const std::vector<DeviceInfo> devices = runtime->devices();
  for (const DeviceInfo& device : devices) digest.add(device.identity);
  return {static_cast<std::int32_t>(devices.size()), digest.value()};
}

DeviceShare device_share(int devices, int processes, int index) {
  const auto first_of = [=](std::int64_t process) { return static_cast<int>(devices * process / processes); };
  return {first_of(index), first_of(index + 1) - first_of(index)};
}

}  // namespace farandole
