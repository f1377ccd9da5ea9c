// SPDX-License-Identifier: Apache-2.0
// The trainer's kernels for GPUs.
#include "kernel_bodies.h"
#include "kernel_list.h"

namespace farandole::trainer::cuda {

__device__ inline Share share_of_thread() {
  return {static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<std::int64_t>(gridDim.x) * blockDim.x};
}

#define FARANDOLE_TRAINER_KERNEL(name, Body)                                          \
  extern "C" __global__ void __launch_bounds__(farandole::cuda::kOperandBlockThreads) \
      farandole_trainer_##name##_f32(const __grid_constant__ Arguments arguments) {   \
    Body<float>::run(arguments, share_of_thread());                                   \
  }                                                                                   \
  extern "C" __global__ void __launch_bounds__(farandole::cuda::kOperandBlockThreads) \
      farandole_trainer_##name##_f64(const __grid_constant__ Arguments arguments) {   \
    Body<double>::run(arguments, share_of_thread());                                  \
  }
FARANDOLE_TRAINER_KERNELS(FARANDOLE_TRAINER_KERNEL)

}  // namespace farandole::trainer::cuda
