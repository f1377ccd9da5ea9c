// SPDX-License-Identifier: Apache-2.0
// The devices on which a job trains, in words.
#pragma once

#include <string>

#include "farandole/collectives/communicator.h"
#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// Returns "the CPU", "CUDA device 0 (NVIDIA H100 80GB HBM3), convolutions by cuDNN 9.19.0, attention by cuDNN 9.19.0",
/// or the like with "8 CUDA devices (8 NVIDIA H100 80GB HBM3)" for the devices of all replicas. Collective; blocks.
/// @param execution  of this replica's model
std::string describe_used_devices(Communicator& replica, const Execution& execution);

/// Returns "attention by cuDNN 9.19.0", or "attention by cuBLAS" with a reason, which may be the last shape that cuDNN
/// has refused; empty for an execution on the CPU.
std::string describe_attention(const Execution& execution);

}  // namespace farandole::trainer
