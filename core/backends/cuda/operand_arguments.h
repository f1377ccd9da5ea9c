// SPDX-License-Identifier: Apache-2.0
// Argument of kernels that compute one operation on a few arrays, such as the trainer's. Shared by the kernels, the
// plug-in that launches them, and the tests' fake device. (The kernels of collectives take many tasks in a launch, see
// kernel_arguments.h.)
#pragma once

#include <cstdint>

namespace farandole::cuda {

inline constexpr int kMaxOperands = 8;
inline constexpr int kMaxSizes = 12;
inline constexpr int kMaxNumbers = 8;
/// Threads per block; the kernels are compiled for this number (__launch_bounds__).
inline constexpr unsigned kOperandBlockThreads = 256;

/// An array in the memory of the device.
struct Operand {
  void* address;  ///< null: the operation is without this array
  std::uint64_t bytes;
  bool is_output;  ///< the kernel writes the array, and may read it, too
};

/// The argument, passed by value. The kernel's list says what its operands, sizes and numbers are. Grids and blocks are
/// one-dimensional, and an operation gives the same result for any number of blocks.
struct OperandArguments {
  Operand operands[kMaxOperands];
  std::int64_t sizes[kMaxSizes];
  double numbers[kMaxNumbers];
};

/// Beginning of the names of all such kernels. Kernels are extern "C".
inline constexpr char kOperandKernelPrefix[] = "farandole_trainer_";

}  // namespace farandole::cuda
