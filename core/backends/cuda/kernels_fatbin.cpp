// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels_fatbin.h"

#include "cuda/embed.h"

// Embeds the compiled kernels. The build defines FARANDOLE_KERNELS_FATBIN and FARANDOLE_KERNELS_FATBIN_CUDA12 as the
// paths of the files; FARANDOLE_KERNELS_FATBIN_TOOLKIT and FARANDOLE_KERNELS_FATBIN_CUDA12_TOOLKIT are the CUDA
// versions of the compilers.
#if defined(FARANDOLE_KERNELS_FATBIN)
FARANDOLE_EMBED(farandole_kernels_fatbin, FARANDOLE_KERNELS_FATBIN);
const int farandole_kernels_fatbin_toolkit = FARANDOLE_KERNELS_FATBIN_TOOLKIT;
#else
const unsigned char farandole_kernels_fatbin[1] = {0};
const std::size_t farandole_kernels_fatbin_size = 0;
const int farandole_kernels_fatbin_toolkit = 0;
#endif

#if defined(FARANDOLE_KERNELS_FATBIN_CUDA12)
FARANDOLE_EMBED(farandole_kernels_fatbin_cuda12, FARANDOLE_KERNELS_FATBIN_CUDA12);
const int farandole_kernels_fatbin_cuda12_toolkit = FARANDOLE_KERNELS_FATBIN_CUDA12_TOOLKIT;
#else
const unsigned char farandole_kernels_fatbin_cuda12[1] = {0};
const std::size_t farandole_kernels_fatbin_cuda12_size = 0;
const int farandole_kernels_fatbin_cuda12_toolkit = 0;
#endif
