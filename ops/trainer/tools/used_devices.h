// SPDX-License-Identifier: Apache-2.0
// The devices on which a job trains, in words.
#pragma once

#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/trainer/execution.h"
#include "farandole/trainer/model_description.h"

namespace farandole::trainer {

/// Returns "the CPU", "CUDA device 0 (NVIDIA H100 80GB HBM3), convolutions by cuDNN 9.19.0, attention by cuDNN 9.19.0",
/// or the like with "8 CUDA devices (8 NVIDIA H100 80GB HBM3)" for the devices of all replicas. Attention is named only
/// if the model has it. Collective; blocks.
/// @param execution, layers  of this replica's model: Model::execution, Model::work
std::string describe_used_devices(Communicator& replica, const Execution& execution,
                                  const std::vector<LayerWork>& layers);

/// Returns "attention by cuDNN 9.19.0", or "attention by cuBLAS" with a reason, which may be the last shape that cuDNN
/// has refused; empty for an execution on the CPU, and for a model without attention.
std::string describe_attention(const Execution& execution, const std::vector<LayerWork>& layers);

}  // namespace farandole::trainer
