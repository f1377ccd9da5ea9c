// SPDX-License-Identifier: Apache-2.0
// Temporary memory of a device operation.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>

#include "farandole/sdk/device.h"

namespace farandole {

/// Owner of memory that a device can access; null if it has no bytes. Make it on the device's thread, because the
/// driver may block; destroy it on any thread.
using DeviceScratch = std::unique_ptr<void, std::function<void(void*)>>;

/// Memory of the device, from its pool.
inline DeviceScratch device_scratch(Device& device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return {device.allocate(bytes), [&device](void* memory) { device.release(memory); }};
}
/// Pinned memory of the host.
inline DeviceScratch pinned_scratch(Device& device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return {device.allocate_pinned(bytes), [&device](void* memory) { device.release_pinned(memory); }};
}
/// Pinned memory of the host, filled with zeros.
inline DeviceScratch zeroed_pinned_scratch(Device& device, std::size_t bytes) {
  DeviceScratch memory = pinned_scratch(device, bytes);
  if (memory != nullptr) std::memset(memory.get(), 0, bytes);
  return memory;
}

}  // namespace farandole
