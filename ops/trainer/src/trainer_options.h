// SPDX-License-Identifier: Apache-2.0
// Check that options, model, data and number of replicas fit together.
#pragma once

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Properties of a training that its options must fit.
struct TrainingFacts {
  int replicas = 1;
  const Dataset& training;
  const Dataset* test = nullptr;
  const Shape& model_input;
  const Shape& model_output;
};

/// @param what  "training"   @throws InvalidArgument  the model cannot take the samples or has too few classes
void check_data(const Dataset& data, const char* what, const Shape& model_input, const Shape& model_output);

/// @throws InvalidArgument  lists the valid choices   @throws Unsupported  the combination is not available
void check(const TrainerOptions& options, const TrainingFacts& facts);

}  // namespace farandole::trainer
