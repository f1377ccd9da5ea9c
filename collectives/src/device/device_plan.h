// SPDX-License-Identifier: Apache-2.0
// Plans for a stream: all kernel launches and message groups of a scheduled collective, with addresses.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/sdk/device.h"
#include "messages/execution_plan.h"
#include "operation/call.h"

namespace farandole {

/// A schedule as a sequence of stages. In each stage the launches run in sequence; then all messages of the stage run
/// at the same time, as one NCCL group. A stage holds all messages of a round of the schedule, so that all ranks group
/// messages alike, even if their local dependencies differ.
struct DevicePlan {
  struct Stage {
    std::vector<std::vector<DeviceTask>> launches;  ///< tasks of one launch are independent of each other
    std::vector<DeviceMessage> messages;
  };
  std::vector<Stage> stages;
};

/// Alignment, in bytes, at which kernels and the vendor's collectives access memory fastest.
inline constexpr std::size_t kDeviceAlignment = 256;
/// Rounds up to a multiple of kDeviceAlignment.
constexpr std::size_t device_aligned(std::size_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

/// Bytes of device memory to allocate for an operation: scratch slots, bounce memory, staged input and whole vector.
std::size_t device_memory_needed(const ExecutionPlan& plan, DType dtype);

/// Makes the plan. Pure: reads and writes no memory.
/// @param memory  device_memory_needed() bytes of device memory, aligned to kDeviceAlignment
DevicePlan make_device_plan(const ExecutionPlan& plan, const Call& call, void* memory);

}  // namespace farandole
