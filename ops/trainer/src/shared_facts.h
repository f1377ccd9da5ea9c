// SPDX-License-Identifier: Apache-2.0
// What must be the same on all ranks for them to train one model: options, data and model, as text.
#pragma once

#include <string>
#include <vector>

#include "farandole/trainer/agreement.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Every option but those that concern a rank alone.
std::vector<SharedFact> facts_of(const TrainerOptions& options);
/// @param what  "training"   @param data  null: there are none
std::vector<SharedFact> facts_of(const Dataset* data, const std::string& what);
/// Precision, layers, parameters and statistics. @throws InvalidArgument  the model was moved from
template <class Scalar>
std::vector<SharedFact> facts_of(const Model<Scalar>& model);

}  // namespace farandole::trainer
