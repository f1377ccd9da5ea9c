// SPDX-License-Identifier: Apache-2.0
// Kernels of the double: those of the GPU's source, compiled for processors (`host_kernels` in CMake), found by name.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "cuda/kernel_arguments.h"
#include "fake_devices.h"

namespace farandole::fake {

/// A kernel that libfake_cuda.so holds.
struct KernelBody {
  /// Runs one thread of the kernel at `address`, the thread given by blockIdx and threadIdx.
  void (*run_thread)(void* address, const cuda::LargestArguments& arguments);
  void* address;
  unsigned capacity;           ///< maximum number of tasks
  std::size_t argument_bytes;  ///< of the kernel's argument
};

/// Returns the kernel of this name if libfake_cuda.so holds it.
std::optional<KernelBody> find_kernel(const std::string& name);

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

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
};
/// Records the memory that a launch uses. Reports, and returns false, if the kernel must not use this memory or has not
/// been compiled for this shape.
bool check_launch(const Function& function, const LaunchShape& shape, const cuda::LargestArguments& arguments,
                  Uses& uses);
/// Translates all addresses of tasks for streams. @param arguments  accepted by check_launch before
void translate_for_streams(cuda::LargestArguments& arguments);

/// True if CUDA takes a launch of this shape.
bool is_valid(const LaunchShape& shape);
/// Runs all threads of a launch, one after another: blocks in a random order, threads of a block from a random one on.
/// @param arguments  with addresses of streams
void run_kernel(const KernelBody& body, const LaunchShape& shape, const cuda::LargestArguments& arguments,
                Random& random);

}  // namespace farandole::fake
