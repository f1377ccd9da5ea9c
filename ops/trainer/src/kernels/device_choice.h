// SPDX-License-Identifier: Apache-2.0
// Where a training computes.
#pragma once

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Returns where the replicas compute: kAuto becomes kCuda if every rank has a device of its own, the trainer can
/// compute on it, and all layers have a form for devices; else kCpu. Collective if the option is kAuto.
template <class Scalar>
ComputeDevice chosen_device(Communicator& communicator, const TrainerOptions& options, const Model<Scalar>& model);

}  // namespace farandole::trainer
