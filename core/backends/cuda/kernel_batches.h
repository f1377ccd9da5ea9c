// SPDX-License-Identifier: Apache-2.0
// Assigns tasks to kernels, and cuts them into launches. Pure functions: no call of the driver.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "cuda/kernel_arguments.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// Kernel numbers are 0 … kKernelCount - 1. Some numbers have no kernel, and an empty name.
inline constexpr int kKernelCount = 1 + kDTypeCount * 4 + kDTypeCount + 4 * 4 + 6 * 2 + 2 * 2 * 2 + 5 * 3;
/// "farandole_reduce_f32_sum"; empty if no kernel has this number.
std::string kernel_name(int kernel);
/// Name of a variant: "farandole_copy_x682". Empty if the kernel has no such variant.
/// @param variant  index in kCapacities
std::string variant_name(int kernel, std::size_t variant);

/// Number of the kernel that executes a task. @throws Unsupported  there is none
int kernel_of(const DeviceTask& task);

/// A launch of tasks of the same kernel.
struct KernelBatch {
  int kernel;
  std::size_t variant;         ///< index in kCapacities
  LargestArguments arguments;  ///< elements of `tasks` from task_count on are uninitialised
};
/// Sorts tasks by kernel, cuts them into batches, and calls `launch` for each batch. All batches of a kernel are full
/// except the last, and each uses the variant with the smallest sufficient capacity. Empty tasks are skipped.
/// @param has_large_variants  KernelImage::has_large_variants
/// @throws Unsupported  a task has no kernel; nothing was launched
void for_each_batch(std::span<const DeviceTask> tasks, bool has_large_variants,
                    const std::function<void(const KernelBatch&)>& launch);

}  // namespace farandole::cuda
