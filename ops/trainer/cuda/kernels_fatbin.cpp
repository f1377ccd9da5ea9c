// SPDX-License-Identifier: Apache-2.0
#include "kernels_fatbin.h"

#include "cuda/embed.h"

// The build defines FARANDOLE_TRAINER_FATBIN and FARANDOLE_TRAINER_FATBIN_CUDA12 as the paths of the compiled kernels.
#if defined(FARANDOLE_TRAINER_FATBIN)
FARANDOLE_EMBED(farandole_trainer_fatbin, FARANDOLE_TRAINER_FATBIN);
const int farandole_trainer_fatbin_toolkit = FARANDOLE_TRAINER_FATBIN_TOOLKIT;
#else
const unsigned char farandole_trainer_fatbin[1] = {0};
const std::size_t farandole_trainer_fatbin_size = 0;
const int farandole_trainer_fatbin_toolkit = 0;
#endif

#if defined(FARANDOLE_TRAINER_FATBIN_CUDA12)
FARANDOLE_EMBED(farandole_trainer_fatbin_cuda12, FARANDOLE_TRAINER_FATBIN_CUDA12);
const int farandole_trainer_fatbin_cuda12_toolkit = FARANDOLE_TRAINER_FATBIN_CUDA12_TOOLKIT;
#else
const unsigned char farandole_trainer_fatbin_cuda12[1] = {0};
const std::size_t farandole_trainer_fatbin_cuda12_size = 0;
const int farandole_trainer_fatbin_cuda12_toolkit = 0;
#endif
