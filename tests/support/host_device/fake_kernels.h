// SPDX-License-Identifier: Apache-2.0
// Kernels of the double: those of the GPU's source, compiled for processors (`host_kernels` in CMake), found by name.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "cuda/kernel_arguments.h"
#include "fake_devices.h"

namespace farandole::fake {

/// Runs one thread of a kernel, the thread given by blockIdx and threadIdx.
using KernelBody = void (*)(cuda::KernelArguments arguments);

/// The kernel of this name that libfake_cuda.so holds; null if it holds none.
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

/// Records the memory that a launch uses. Reports, and returns false, if the kernel must not use this memory.
bool check_launch(const Function& function, const cuda::KernelArguments& arguments, Uses& uses);
/// Returns the tasks with all addresses translated for streams. @param arguments  accepted by check_launch before
cuda::KernelArguments stream_arguments(cuda::KernelArguments arguments);

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
};
/// True if CUDA takes a launch of this shape.
bool is_valid(const LaunchShape& shape);
/// Runs all threads of a launch, one after another: blocks in a random order, threads of a block from a random one on.
/// @param arguments  with addresses of streams
void run_kernel(KernelBody body, const LaunchShape& shape, const cuda::KernelArguments& arguments, Random& random);

}  // namespace farandole::fake
