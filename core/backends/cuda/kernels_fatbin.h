// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs as nvcc has compiled them, for cuModuleLoadData. Functions of the names in kernel_list.h.
#pragma once

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): names of symbols
extern "C" {
/// By the build's nvcc. Drivers load what is no newer than they are: CUDA 13's from 580 on.
extern const unsigned char farandole_kernels_fatbin[];
/// 0 where the build had no nvcc.
extern const std::size_t farandole_kernels_fatbin_size;
/// By an nvcc of CUDA 12, for drivers before 580.
extern const unsigned char farandole_kernels_fatbin_cuda12[];
/// 0 where the build had none.
extern const std::size_t farandole_kernels_fatbin_cuda12_size;
}
// NOLINTEND(readability-identifier-naming)
