// SPDX-License-Identifier: Apache-2.0
// Kernels of the double: the GPU's kernels, compiled for the CPU from the same source (`host_kernels` in CMake). They
// are found by name.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "cuda/kernel_arguments.h"
#include "cuda/operand_arguments.h"
#include "fake_devices.h"

namespace farandole::fake {

/// The argument of a launch: many tasks, or one operation on a few arrays.
using LaunchArguments = std::variant<cuda::LargestArguments, cuda::OperandArguments>;

/// A kernel that is linked into libfake_cuda.so.
struct KernelBody {
  /// Runs one thread of the kernel at `address`. blockIdx and threadIdx select the thread.
  void (*run_thread)(void* address, const LaunchArguments& arguments);
  void* address;
  unsigned capacity;           ///< maximum number of tasks; 0: one operation
  std::size_t argument_bytes;  ///< of the kernel's argument
};
/// Copies the argument of a launch. @param from  as the program passed it
LaunchArguments arguments_at(const KernelBody& body, const void* from);

/// Returns the kernel of this name; nothing if libfake_cuda.so has none.
std::optional<KernelBody> find_kernel(const std::string& name);

/// Object behind a CUmodule. Lives until the process ends.
struct Module : Handle {
  explicit Module(Device& owner) : Handle(Kind::kModule), device(owner) {}
  Device& device;
};

/// Object behind a CUfunction. Lives until the process ends.
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
/// Records the memory that a launch uses in `uses`. If the kernel must not use this memory, or was not compiled for
/// this shape, reports a misuse and returns false.
bool check_launch(const Function& function, const LaunchShape& shape, const LaunchArguments& arguments, Uses& uses);
/// Translates all addresses for streams. @param arguments  accepted by check_launch before
void translate_for_streams(LaunchArguments& arguments);

/// True if CUDA accepts a launch of this shape.
bool is_valid(const LaunchShape& shape);
/// Runs all threads of a launch one after another: the blocks in random order, the threads of a block starting at a
/// random thread. @param arguments  with addresses for streams (translate_for_streams)
void run_kernel(const KernelBody& body, const LaunchShape& shape, const LaunchArguments& arguments, Random& random);

}  // namespace farandole::fake
