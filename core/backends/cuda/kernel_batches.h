// SPDX-License-Identifier: Apache-2.0
// Assigns tasks to kernels and launches. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "cuda/kernel_arguments.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// Kernel numbers are 0 … kKernelCount - 1. Some numbers have no kernel, and an empty name.
inline constexpr int kKernelCount = 1 + kDTypeCount * 4 + kDTypeCount + 4 * 4 + 6 * 2;
/// "farandole_reduce_f32_sum"; empty if no kernel has this number.
std::string kernel_name(int kernel);

/// Number of the kernel that executes a task. @throws Unsupported  there is none
int kernel_of(const DeviceTask& task);

/// A launch: up to kTasksPerLaunch tasks of the same kernel.
struct KernelBatch {
  int kernel = 0;
  std::uint64_t longest_bytes = 0;  ///< of the longest task: its count times the size of the larger of its two types
  KernelArguments arguments;
};
/// Sorts tasks by kernel, cuts them into batches, and calls `launch` for each batch. All batches of a kernel are full
/// except the last. Empty tasks are skipped.
/// @throws Unsupported  a task has no kernel; nothing was launched
void for_each_batch(std::span<const DeviceTask> tasks, const std::function<void(const KernelBatch&)>& launch);

}  // namespace farandole::cuda
