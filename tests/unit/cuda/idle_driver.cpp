// SPDX-License-Identifier: Apache-2.0
// What fake_driver.cpp leaves out.
#include "idle_libraries.h"

namespace farandole::cuda {
extern "C" {
FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_IDLE_CUDA)
}
}  // namespace farandole::cuda
