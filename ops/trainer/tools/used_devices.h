// SPDX-License-Identifier: Apache-2.0
// The devices on which a job trains, in words.
#pragma once

#include <string>

#include "farandole/collectives/communicator.h"

namespace farandole::trainer {

/// Returns "the CPU", "CUDA device 0 (NVIDIA H100 80GB HBM3)", or "8 CUDA devices (8 NVIDIA H100 80GB HBM3)" for the
/// devices of all replicas. Collective; blocks.
/// @param space  where this replica's model lies
std::string describe_used_devices(Communicator& replica, MemorySpace space);

}  // namespace farandole::trainer
