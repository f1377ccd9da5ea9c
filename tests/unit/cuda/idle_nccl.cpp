// SPDX-License-Identifier: Apache-2.0
// NCCL's functions that fake_nccl.cpp does not define.
#include "idle_libraries.h"

namespace farandole::cuda {
extern "C" {
FARANDOLE_NCCL_FUNCTIONS(FARANDOLE_IDLE_NCCL)
}
}  // namespace farandole::cuda
