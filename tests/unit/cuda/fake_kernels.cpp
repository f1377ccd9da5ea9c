// SPDX-License-Identifier: Apache-2.0
// Placeholder for the binary of the kernels, which no driver can load: for tests of the plug-in in builds without nvcc.
#include "cuda/kernels_fatbin.h"

const unsigned char farandole_kernels_fatbin[] = {1};
const std::size_t farandole_kernels_fatbin_size = 1;
const int farandole_kernels_fatbin_toolkit = 13000;
const unsigned char farandole_kernels_fatbin_cuda12[] = {1};
const std::size_t farandole_kernels_fatbin_cuda12_size = 1;
const int farandole_kernels_fatbin_cuda12_toolkit = 12090;
