// SPDX-License-Identifier: Apache-2.0
// Kernels of which no driver makes anything, for tests of the plug-in where none are built.
#include "cuda/kernels_fatbin.h"

const unsigned char farandole_kernels_fatbin[] = {1};
const std::size_t farandole_kernels_fatbin_size = 1;
const int farandole_kernels_fatbin_toolkit = 13000;
const unsigned char farandole_kernels_fatbin_cuda12[] = {1};
const std::size_t farandole_kernels_fatbin_cuda12_size = 1;
const int farandole_kernels_fatbin_cuda12_toolkit = 12090;
