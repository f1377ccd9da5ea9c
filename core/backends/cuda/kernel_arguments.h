// SPDX-License-Identifier: Apache-2.0
// Argument of all kernels. Shared by the kernels, the plug-in that launches them, and the tests' fake device.
#pragma once

#include <cstdint>

namespace farandole::cuda {

/// Maximum number of tasks of a launch: with 64 the arguments fit in 4 KiB, the limit of older drivers.
inline constexpr int kTasksPerLaunch = 64;

/// A task: output[i] = f(left[i], right[i]) or f(left[i], factor), depending on the kernel, for `count` elements.
struct KernelTask {
  void* output;
  const void* left;
  const void* right;
  std::uint64_t count;
  double factor;
};

/// The argument of a kernel, passed by value. Block (x, y) of the grid works on task y; the blocks with the same y
/// share the elements of the task.
struct KernelArguments {
  std::uint32_t task_count;
  std::uint32_t unused;
  KernelTask tasks[kTasksPerLaunch];
};
static_assert(sizeof(KernelArguments) <= 4096);

// Kernels are extern "C" and named as follows; types and operations are spelt as in dtype.h:
//   farandole_copy                      `count` is in bytes
//   farandole_reduce_<dtype>_<op>       op: sum, product, min, max
//   farandole_scale_<dtype>             all types except bool
//   farandole_cast_<from>_<to>          f16, bf16, f32, f64 among each other; integers to their sum_type() and back

}  // namespace farandole::cuda
