// SPDX-License-Identifier: Apache-2.0
// Where a training computes.
#pragma once

#include <string>
#include <vector>

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// The parts of a training that need a form for devices.
template <class Scalar>
struct TrainingParts {
  const Model<Scalar>& model;
  const Loss<Scalar>& loss;
  const std::vector<MetricPointer<Scalar>>& metrics;
  const TrainerOptions& options;
};

/// Returns why the training cannot compute on devices: names the layer, loss, metric or optimizer. Empty if it can.
template <class Scalar>
std::string why_not_on_devices(const TrainingParts<Scalar>& parts);

/// Returns what kAuto chooses: kCuda if `why_not` is empty and every rank has a device of its own on which the trainer
/// can compute; else kCpu, and rank 0 logs the reason: as a warning if a rank has a driver for devices. Collective.
ComputeDevice choose_device(Communicator& communicator, const std::string& why_not);

}  // namespace farandole::trainer
