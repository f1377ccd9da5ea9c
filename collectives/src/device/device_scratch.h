// SPDX-License-Identifier: Apache-2.0
// Temporary device memory of an operation.
#pragma once

#include <cstddef>

#include "farandole/sdk/device.h"

namespace farandole {

/// Owner of memory from the device's pool. Construct on the device's thread, because the driver may block; destroy on
/// any thread.
class DeviceScratch {
 public:
  DeviceScratch(Device& device, std::size_t bytes)
      : device_(device), memory_(bytes > 0 ? device.allocate(bytes) : nullptr) {}
  ~DeviceScratch() {
    if (memory_ != nullptr) device_.release(memory_);
  }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  void* data() const { return memory_; }

 private:
  Device& device_;
  void* const memory_;
};

}  // namespace farandole
