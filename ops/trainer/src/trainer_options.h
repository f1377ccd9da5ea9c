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

/// Checks that a data set fits the model. @param what  name of the data set for messages, such as "training"
/// @throws InvalidArgument  the model cannot take the samples or has too few classes
void check_data(const Dataset& data, const char* what, const Shape& model_input, const Shape& model_output);

/// Checks the options. @throws InvalidArgument  lists the valid choices   @throws Unsupported  the combination of
/// options is not available
void check(const TrainerOptions& options, const TrainingFacts& facts);

}  // namespace farandole::trainer
