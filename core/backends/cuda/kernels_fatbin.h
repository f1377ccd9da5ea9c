// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs as nvcc has compiled them, for cuModuleLoadData. Functions of the names in kernel_list.h.
#pragma once

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): names of symbols
extern "C" {
/// By the build's nvcc.
extern const unsigned char farandole_kernels_fatbin[];
/// 0 where the build had no nvcc.
extern const std::size_t farandole_kernels_fatbin_size;
/// The CUDA of that nvcc: 13000 for 13.0.
extern const int farandole_kernels_fatbin_toolkit;
/// By an nvcc of CUDA 12, for drivers before 580.
extern const unsigned char farandole_kernels_fatbin_cuda12[];
/// 0 where the build had none.
extern const std::size_t farandole_kernels_fatbin_cuda12_size;
extern const int farandole_kernels_fatbin_cuda12_toolkit;
}
// NOLINTEND(readability-identifier-naming)
