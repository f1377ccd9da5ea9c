// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs. Block (x, y) works on task y; the threads of all blocks with this y are its workers.
#include "cuda/kernel_list.h"
#include "cuda/launch_shape.h"

namespace farandole::cuda {

#define FARANDOLE_KERNEL(name, ...)                                                                 \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, kBlocksPerMultiprocessor)             \
      farandole_##name(const __grid_constant__ KernelArguments arguments) {                         \
    run_tasks<__VA_ARGS__>(arguments, blockIdx.y, gridDim.y, blockIdx.x * blockDim.x + threadIdx.x, \
                           gridDim.x * blockDim.x);                                                 \
  }
FARANDOLE_KERNELS(FARANDOLE_KERNEL)

}  // namespace farandole::cuda
