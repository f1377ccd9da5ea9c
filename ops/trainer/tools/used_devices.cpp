// SPDX-License-Identifier: Apache-2.0
#include "used_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "farandole/sdk/device.h"
#include "kernels/kernels.h"
#include "short_text.h"

namespace farandole::trainer {
namespace {

/// The device of a replica, as the replicas tell each other.
struct UsedDevice {
  std::int32_t host = 0;
  std::array<char, 64> identity{}, name{};  // end with a zero
};

}  // namespace

std::string describe_attention(const Execution& execution, const std::vector<LayerWork>& layers) {
  const auto attends = [](const LayerWork& layer) { return layer.kind.starts_with("attention,"); };
  if (execution.space().is_host() || std::ranges::none_of(layers, attends)) return "";
  return fmt::format("attention by {}", execution.device_kernels()->attention_library());
}

std::string describe_used_devices(Communicator& replica, const Execution& execution,
                                  const std::vector<LayerWork>& layers) {
  if (execution.space().is_host()) return "the CPU";
  const DeviceKernels& kernels = *execution.device_kernels();
  const DeviceInfo& own = kernels.device().info();
  const std::string attention = describe_attention(execution, layers);
  const std::string libraries =
      fmt::format("convolutions by {}{}{}", kernels.convolution_library(execution.precision().compute),
                  attention.empty() ? "" : ", ", attention);
  UsedDevice mine{replica.placement().host_index, {}, {}};
  copy_text(own.identity, mine.identity);
  copy_text(own.name, mine.name);
  std::vector<UsedDevice> all(static_cast<std::size_t>(replica.size()), mine);
  replica.allgather(ConstBufferView(&mine, sizeof mine, DType::kU8),
                    BufferView(all.data(), all.size() * sizeof mine, DType::kU8));
  std::set<std::pair<int, std::string>> devices;
  std::map<std::string, int> names;
  for (const UsedDevice& used : all) {
    if (devices.emplace(used.host, used.identity.data()).second) ++names[used.name.data()];
  }
  if (devices.size() == 1) return fmt::format("CUDA device {} ({}), {}", own.ordinal, own.name, libraries);
  std::vector<std::string> texts;
  for (const auto& [name, count] : names) texts.push_back(count > 1 ? fmt::format("{} {}", count, name) : name);
  return fmt::format("{} CUDA devices ({}), {}", devices.size(), fmt::join(texts, ", "), libraries);
}

}  // namespace farandole::trainer
