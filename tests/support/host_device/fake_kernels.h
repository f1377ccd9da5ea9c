// SPDX-License-Identifier: Apache-2.0
// Kernels of the double: functions of the processor, found by name.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "cuda/kernel_arguments.h"
#include "fake_devices.h"

namespace farandole::fake {

/// What `worker` of `workers` does.
using KernelBody = void (*)(const cuda::KernelArguments& arguments, unsigned worker, unsigned workers);

/// The kernel of this name that libfake_cuda.so holds, or else the program; null if neither does.
KernelBody find_kernel(const std::string& name);

/// Behind a CUmodule. Lives until the process ends.
struct Module : Handle {
  explicit Module(Device& owner) : Handle(Kind::kModule), device(owner) {}
  Device& device;
};

/// Behind a CUfunction. Lives until the process ends.
struct Function : Handle {
  Function(Device& owner, std::string kernel_name, KernelBody kernel);
  Device& device;
  const std::string name;
  const KernelBody body;
  const std::array<std::size_t, 3> element_bytes;  ///< of output, left and right; 0: not used
};

/// Runs a kernel as workers that come in a random order.
void run_kernel(KernelBody body, const cuda::KernelArguments& arguments, Random& random);

/// Notes what a launch uses. False, after a report, if the kernel must not run on this.
bool check_launch(const Function& function, const cuda::KernelArguments& arguments, Uses& uses);

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
};
/// True if CUDA takes a launch of this shape.
bool is_valid(const LaunchShape& shape);

}  // namespace farandole::fake
