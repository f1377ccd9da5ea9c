// SPDX-License-Identifier: Apache-2.0
// Plans for a stream: every launch and every group of a collective, with addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/sdk/device.h"
#include "messages/execution_plan.h"
#include "operation/call.h"

namespace farandole {

/// What the stream runs, in this order: for each stage its launches, then its messages.
struct DevicePlan {
  struct Stage {
    std::vector<std::vector<DeviceTask>> launches;
    std::vector<DeviceMessage> messages;
  };
  std::vector<Stage> stages;
};

/// What kernels and the vendor read and write fastest begins at multiples of so many bytes.
inline constexpr std::size_t kDeviceAlignment = 256;
constexpr std::size_t device_aligned(std::size_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

/// Bytes of device memory that an operation needs for itself: scratch slots, bounce memory, staged input, whole vector.
std::size_t device_memory_needed(const ExecutionPlan& plan, DType dtype);

/// Pure: reads no memory. @param memory  as many bytes as needed, aligned to kDeviceAlignment
DevicePlan make_device_plan(const ExecutionPlan& plan, const Call& call, void* memory);

}  // namespace farandole
