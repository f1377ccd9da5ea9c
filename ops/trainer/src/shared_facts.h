// SPDX-License-Identifier: Apache-2.0
// Properties that must be the same on all ranks of a training, as text: options, data and model.
#pragma once

#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// All options, except those that may differ from rank to rank.
std::vector<SharedFact> facts_of(const TrainerOptions& options);
/// Name and states of the program's own update rule; none for a built-in rule.
/// @throws InvalidArgument  as make_update_rule
template <class Scalar>
std::vector<SharedFact> facts_of_rule(const OptimizerOptions& options);
/// Size, shape, classes and checksum of a data set; with own shards shape and classes only.
/// @param data  null: there is no data set   @param what  name of the data set, such as "training"
std::vector<SharedFact> facts_of(const Dataset* data, const std::string& what, bool own_shards);
/// Precision, layers, parameters and statistics. @throws InvalidArgument  the model was moved from
template <class Scalar>
std::vector<SharedFact> facts_of(const Model<Scalar>& model);

}  // namespace farandole::trainer
