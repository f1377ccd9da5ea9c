// SPDX-License-Identifier: Apache-2.0
// The kernels of kernel_list.h as nvcc has compiled them, embedded by the build, for cuModuleLoadData.
#pragma once

#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): names of symbols
extern "C" {
/// Compiled by the build's nvcc.
extern const unsigned char farandole_kernels_fatbin[];
/// 0 if the build had no nvcc.
extern const std::size_t farandole_kernels_fatbin_size;
/// CUDA version of that nvcc: 13000 for 13.0.
extern const int farandole_kernels_fatbin_toolkit;
/// Compiled by an nvcc of CUDA 12, for drivers older than 580.
extern const unsigned char farandole_kernels_fatbin_cuda12[];
/// 0 if the build had no nvcc of CUDA 12.
extern const std::size_t farandole_kernels_fatbin_cuda12_size;
extern const int farandole_kernels_fatbin_cuda12_toolkit;
}
// NOLINTEND(readability-identifier-naming)
