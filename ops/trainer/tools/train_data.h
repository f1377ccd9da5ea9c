// SPDX-License-Identifier: Apache-2.0
// The data that farandole-train reads or makes.
#pragma once

#include "farandole/trainer/dataset.h"
#include "farandole/trainer/models.h"
#include "train_options.h"

namespace farandole::trainer {

/// Reads the data, or makes them from the seed.
/// @throws DataError  a file is missing or wrong   @throws InvalidArgument  the augmentation does not fit the samples
TrainingData load_data(const DataCommand& command);

/// The command's sizes of the model, with the input, classes and vocabulary of the data.
ModelOptions model_options_for(const TrainCommand& command, const Dataset& training);

}  // namespace farandole::trainer
