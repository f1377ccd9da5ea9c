// SPDX-License-Identifier: Apache-2.0
// What fake_nccl.cpp leaves out.
#include "idle_libraries.h"

namespace farandole::cuda {
extern "C" {
FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_IDLE_NCCL)
}
}  // namespace farandole::cuda
