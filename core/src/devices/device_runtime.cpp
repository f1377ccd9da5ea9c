// SPDX-License-Identifier: Apache-2.0
// Loads the device plug-in once per process.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/plugin.h"
#include "farandole/sdk/backend.h"
#include "farandole/sdk/device.h"

namespace farandole {

namespace {

constexpr std::string_view kDevicePluginName = "cuda";
constexpr PluginKind kDevicePlugin{"farandole_device_v1", "farandole_device_build_id",
                                   "install it, or build Farandole with FARANDOLE_WITH_CUDA=ON"};

/// Process that loaded the plug-in first; 0: no process yet. A process that finds a different process here is a forked
/// child of that process.
std::atomic<pid_t> loading_process{0};
/// Result of loading; null until loading has ended. Released by the loading thread, acquired by all threads.
std::atomic<const DeviceAvailability*> loaded_devices{nullptr};

DeviceAvailability load_devices(const Settings& settings) {
  try {
    const PluginLibrary plugin = load_plugin(kDevicePluginName, kDevicePlugin, settings);
    const DeviceHostApi host{sizeof(DeviceHostApi), build_id(), settings.devices.cuda_library.c_str(),
                             settings.devices.nccl_library.c_str()};
    DeviceAvailability devices;
    const SignalsDiverted from_threads_of_driver;
    devices.runtime = reinterpret_cast<DeviceEntry>(plugin.entry)(&host, &devices.reason);
    if (devices.runtime != nullptr) {
      devices.reason.clear();
    } else if (devices.reason.empty()) {
      devices.reason = plugin_refusal(kDevicePluginName, plugin);
    }
    return devices;
  } catch (const std::exception& error) {
    return {nullptr, message_of(error)};
  }
}

/// Result for a forked child: a driver does not work in children of the process that has initialised the driver.
/// Lock-free, because a thread of the parent may have been loading at the fork.
const DeviceAvailability& devices_of_child(pid_t parent) {
  const DeviceAvailability* const parents = loaded_devices.load(std::memory_order_acquire);
  if (parents != nullptr && parents->runtime == nullptr) return *parents;
  static const DeviceAvailability none{
      nullptr,
      fmt::format("forked from process {}, which uses the devices: drivers do not work in forked children; start "
                  "a new program instead (Python: multiprocessing's method 'spawn')",
                  parent)};
  return none;
}

}  // namespace

const DeviceAvailability& device_runtime(const Settings& settings) {
  if (settings.devices.cuda == "off") {
    static const DeviceAvailability off{nullptr, "FARANDOLE_CUDA=off"};
    return off;
  }
  const pid_t process = getpid();
  pid_t loader = 0;
  if (!loading_process.compare_exchange_strong(loader, process) && loader != process) return devices_of_child(loader);
  static std::once_flag once;
  std::call_once(once, [&settings] {
    // Never destroyed: the runtime is used until the process ends.
    loaded_devices.store(new DeviceAvailability(load_devices(settings)), std::memory_order_release);
  });
  return *loaded_devices.load(std::memory_order_acquire);
}

std::vector<std::string> available_device_plugins(const Settings& settings) {
  if (!has_plugin(kDevicePluginName, settings)) return {};
  return {std::string(kDevicePluginName)};
}

}  // namespace farandole
