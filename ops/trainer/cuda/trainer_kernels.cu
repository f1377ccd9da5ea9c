// SPDX-License-Identifier: Apache-2.0
// The trainer's kernels for GPUs.
#include "kernel_bodies.h"
#include "kernel_list.h"

namespace farandole::trainer::cuda {

__device__ inline Share share_of_thread() {
  return {static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<std::int64_t>(gridDim.x) * blockDim.x};
}

#define FARANDOLE_TRAINER_FORM(name, Body, Type, suffix)                                 \
  extern "C" __global__ void __launch_bounds__(farandole::cuda::kOperandBlockThreads)    \
      farandole_trainer_##name##_##suffix(const __grid_constant__ Arguments arguments) { \
    Body<Type>::run(arguments, share_of_thread());                                       \
  }

#define FARANDOLE_TRAINER_KERNEL(name, Body)     \
  FARANDOLE_TRAINER_FORM(name, Body, float, f32) \
  FARANDOLE_TRAINER_FORM(name, Body, double, f64)
FARANDOLE_TRAINER_KERNELS(FARANDOLE_TRAINER_KERNEL)

#define FARANDOLE_TRAINER_HALF_KERNEL(name, Body)    \
  FARANDOLE_TRAINER_FORM(name, Body, BFloat16, bf16) \
  FARANDOLE_TRAINER_FORM(name, Body, Half, f16)
FARANDOLE_TRAINER_HALF_KERNELS(FARANDOLE_TRAINER_HALF_KERNEL)

}  // namespace farandole::trainer::cuda
