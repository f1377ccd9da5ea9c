// SPDX-License-Identifier: Apache-2.0
// What every kernel takes: the same for the GPU, the plug-in that launches it, and the processors of the tests' double.
#pragma once

#include <cstdint>

namespace farandole::cuda {

/// Tasks of one launch. With 64 the arguments stay below 4 KiB, which every driver takes.
inline constexpr int kTasksPerLaunch = 64;

/// output[i] = left[i] op right[i], left[i] * factor, …, for `count` elements.
struct KernelTask {
  void* output;
  const void* left;
  const void* right;
  std::uint64_t count;
  double factor;
};

/// The one argument of a kernel, by value. Block (x, y) works on task y; the blocks of one task share its elements.
struct KernelArguments {
  std::uint32_t task_count;
  std::uint32_t unused;
  KernelTask tasks[kTasksPerLaunch];
};
static_assert(sizeof(KernelArguments) <= 4096);

// Names of the kernels, all extern "C", with the names of types and operations as dtype.h spells them:
//   farandole_copy                      `count` is in bytes
//   farandole_reduce_<dtype>_<op>       op: sum, product, min, max
//   farandole_scale_<dtype>             all but bool
//   farandole_cast_<from>_<to>          f16, bf16, f32, f64 among each other

}  // namespace farandole::cuda
