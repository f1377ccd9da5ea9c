// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {

namespace {

constexpr std::string_view kAutomatic = "auto";
/// MemorySpace has 16 bits for them.
constexpr int kMostDevices = 1 << 16;

std::vector<int> parse_ordinals(std::string_view setting) {
  std::vector<int> ordinals;
  for (std::size_t begin = 0; begin <= setting.size();) {
    const std::size_t end = std::min(setting.find(',', begin), setting.size());
    int ordinal = -1;
    const auto [read, error] = std::from_chars(setting.data() + begin, setting.data() + end, ordinal);
    if (error != std::errc{} || read != setting.data() + end || ordinal < 0 || ordinal >= kMostDevices) {
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

int device_of_rank(std::string_view setting, int local_rank, int device_count) {
  if (setting == kAutomatic) return local_rank % device_count;
  const std::vector<int> ordinals = parse_ordinals(setting);
  if (ordinals.size() == 1) return ordinals.front();
  if (static_cast<std::size_t>(local_rank) >= ordinals.size()) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_DEVICE is '{}', which names devices for {} ranks, but local rank {} asks for one; name "
                    "one for each rank of the host, or set auto.",
                    setting, ordinals.size(), local_rank));
  }
  return ordinals[static_cast<std::size_t>(local_rank)];
}

}  // namespace farandole
