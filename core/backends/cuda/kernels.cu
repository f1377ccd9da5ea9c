// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs, in the variants of kCapacities. Grids and blocks are one-dimensional, and a block has
// kBlockThreads threads.
#include "cuda/kernel_list.h"

namespace farandole::cuda {

#define FARANDOLE_VARIANT(name, capacity, ...)                                          \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, kBlocksPerMultiprocessor) \
      farandole_##name(const __grid_constant__ KernelArguments<capacity> arguments) {   \
    run_tasks<__VA_ARGS__>(arguments, blockIdx.x, gridDim.x, threadIdx.x);              \
  }
#define FARANDOLE_KERNEL(name, ...) FARANDOLE_VARIANT(name, 64, __VA_ARGS__)
FARANDOLE_KERNELS(FARANDOLE_KERNEL)

// Same condition as kOldestLargeToolkit; without nvcc (tests on CPUs) all variants are compiled.
#if !defined(__CUDACC__) || __CUDACC_VER_MAJOR__ >= 13
#define FARANDOLE_KERNEL_X682(name, ...) FARANDOLE_VARIANT(name##_x682, 682, __VA_ARGS__)
FARANDOLE_PACKING_KERNELS(FARANDOLE_KERNEL_X682)
#endif

}  // namespace farandole::cuda
