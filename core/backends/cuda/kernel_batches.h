// SPDX-License-Identifier: Apache-2.0
// Which kernel does a task, and which tasks go into one launch. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "cuda/kernel_arguments.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// Numbers of kernels, from 0. Some have no kernel, and no name.
inline constexpr int kKernelCount = 1 + kDTypeCount * 4 + kDTypeCount + 4 * 4 + 6 * 2;
/// "farandole_reduce_f32_sum"; empty if no kernel has this number.
std::string kernel_name(int kernel);

/// @throws Unsupported  no kernel does this
int kernel_of(const DeviceTask& task);

/// Tasks of one launch, of the same kernel.
struct KernelBatch {
  int kernel = 0;
  std::uint64_t longest_bytes = 0;  ///< of a task's elements, of the larger of its two types
  KernelArguments arguments;
};
/// Calls `launch` for each batch. Batches are full but for a kernel's last; empty tasks are in none.
/// @throws Unsupported  a task has no kernel; nothing was launched
void for_each_batch(std::span<const DeviceTask> tasks, const std::function<void(const KernelBatch&)>& launch);

}  // namespace farandole::cuda
