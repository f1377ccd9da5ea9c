// SPDX-License-Identifier: Apache-2.0
// The kernels of kernel_list.h as nvcc has compiled them, as core/backends/cuda/kernels_fatbin.h has those of
// collectives.
#pragma once

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): names of symbols
extern "C" {
extern const unsigned char farandole_trainer_fatbin[];
extern const std::size_t farandole_trainer_fatbin_size;  ///< 0 if the build had no nvcc
extern const int farandole_trainer_fatbin_toolkit;       ///< CUDA version of that nvcc: 13000 for 13.0
extern const unsigned char farandole_trainer_fatbin_cuda12[];
extern const std::size_t farandole_trainer_fatbin_cuda12_size;  ///< 0 if the build had no nvcc of CUDA 12
extern const int farandole_trainer_fatbin_cuda12_toolkit;
}
// NOLINTEND(readability-identifier-naming)
