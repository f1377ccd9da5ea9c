// SPDX-License-Identifier: Apache-2.0
// Argument of all kernels. Shared by the kernels, the plug-in that launches them, and the tests' fake device.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <limits>

#include "cuda/launch_shape.h"

namespace farandole::cuda {

/// A task: output[i] = f(left[i], right[i]) or f(left[i], factor), depending on the kernel, for `count` elements.
struct KernelTask {
  void* output;
  const void* left;
  const void* right;
  std::uint64_t count;
  double factor;
};

/// A task and its tiles, see launch_shape.h. The tiles of all tasks of a launch are numbered consecutively.
struct TiledTask {
  KernelTask task;
  std::uint32_t first_tile;
  std::uint32_t end_tile;  ///< first_tile of the next task
};

/// The argument of a kernel, passed by value. All blocks of the one-dimensional grid share the tiles of all tasks. A
/// launch copies the whole argument, whatever the number of tasks, so kernels have variants of several capacities.
/// A smaller argument has the layout of the beginning of a larger one, so a launch may pass the address of an argument
/// with a larger capacity.
/// @tparam kCapacity  maximum number of tasks
template <int kCapacity>
struct KernelArguments {
  std::uint32_t task_count;
  std::uint32_t tile_count;
  TiledTask tasks[kCapacity];
};

/// Capacities of the variants of a kernel, ascending. All kernels have the first variant, whose argument fits in 4 KiB,
/// the limit of older drivers. The kernels that pack tensors (FARANDOLE_PACKING_KERNELS) have all variants.
inline constexpr std::array kCapacities{64, 682};
using LargestArguments = KernelArguments<kCapacities.back()>;
static_assert(sizeof(KernelArguments<kCapacities.front()>) <= 4096);
static_assert(sizeof(LargestArguments) <= 32764, "the limit of CUDA 12.1 and newer on sm_70 and newer");

/// Appends a task. @param element_bytes  size of the larger element type of the task   @pre  there is capacity;
/// task.count > 0
template <int kCapacity>
constexpr void add_task(KernelArguments<kCapacity>& arguments, const KernelTask& task, std::uint64_t element_bytes) {
  const std::uint64_t end = arguments.tile_count + tiles_of(task.count * element_bytes);
  assert(arguments.task_count < kCapacity && end <= std::numeric_limits<std::int32_t>::max());
  arguments.tasks[arguments.task_count++] = {task, arguments.tile_count, static_cast<std::uint32_t>(end)};
  arguments.tile_count = static_cast<std::uint32_t>(end);
}

// Kernels are extern "C" and named as follows; types and operations are spelt as in dtype.h:
//   farandole_copy                      `count` is in bytes
//   farandole_reduce_<dtype>_<op>       op: sum, product, min, max
//   farandole_scale_<dtype>             all types except bool
//   farandole_order_<dtype>_<op>        f32, f64 to integers of that width; op: min, max
//   farandole_restore_<dtype>_<op>      back to f32, f64
//   farandole_cast_<from>_<to>          f16, bf16, f32, f64 among each other; integers to their sum_type() and back
// The name of a variant with a larger capacity than the first ends with this capacity: farandole_copy_x682.

}  // namespace farandole::cuda
