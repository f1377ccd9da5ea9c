// SPDX-License-Identifier: Apache-2.0
// The driver's functions that fake_driver.cpp does not define.
#include "idle_libraries.h"

namespace farandole::cuda {
extern "C" {
FARANDOLE_CUDA_FUNCTIONS(FARANDOLE_IDLE_CUDA)
}
}  // namespace farandole::cuda
