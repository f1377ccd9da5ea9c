// SPDX-License-Identifier: Apache-2.0
// Whether options, model, data and the number of replicas fit together.
#pragma once

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// What the options must fit.
struct TrainingFacts {
  int replicas = 1;
  const Dataset& training;
  const Dataset* test = nullptr;
  const Shape& model_input;
  const Shape& model_output;
};

/// @param what  "training"   @throws InvalidArgument  the samples are not what the model takes
void check_data(const Dataset& data, const char* what, const Shape& model_input, const Shape& model_output);

/// @throws InvalidArgument  with the valid choices   @throws Unsupported
void check(const TrainerOptions& options, const TrainingFacts& facts);

}  // namespace farandole::trainer
