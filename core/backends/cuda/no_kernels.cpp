// SPDX-License-Identifier: Apache-2.0
// What the plug-in links where no compiler for kernels was found.
#include "cuda/kernels_fatbin.h"

const unsigned char farandole_kernels_fatbin[] = {0};
const std::size_t farandole_kernels_fatbin_size = 0;
const unsigned char farandole_kernels_fatbin_cuda12[] = {0};
const std::size_t farandole_kernels_fatbin_cuda12_size = 0;
