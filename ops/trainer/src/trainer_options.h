// SPDX-License-Identifier: Apache-2.0
// Check that options, model, data and number of replicas fit together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/trainer/trainer.h"

namespace farandole::trainer {

/// Names of the data sets, for messages.
inline constexpr const char* kTrainingData = "the training data";
inline constexpr const char* kTestData = "the test data";

/// Properties of a training that its options must fit.
struct TrainingFacts {
  int replicas = 1;
  const Dataset& training;
  const Dataset* test = nullptr;
  const Shape& model_input;
  const std::vector<std::int64_t>& shards;  ///< as of BatchPlan
  std::vector<std::string> metrics = {};    ///< names of the metrics
  DType model_type = DType::kF32;
};

/// Checks that the model can take the samples of a data set. @param what  name of the data set for messages, such as
/// "the training data"   @throws InvalidArgument
void check_data(const Dataset& data, const std::string& what, const Shape& model_input);

/// Checks that each class has the same name as in the training data, if both have names.
/// @param what  as for `check_data`   @throws InvalidArgument
void check_same_classes(const Dataset& training, const Dataset& data, const std::string& what);

/// Says that a 16-bit type cannot be computed in on the CPU, and what to do.
std::string needs_device(DType compute);

/// Says that layers are timed on the CPU only, and what to do.
std::string profile_needs_cpu();

/// Checks the options, and that the model can take the data. @throws InvalidArgument  lists the valid choices
/// @throws Unsupported  the combination of options is not available
void check(const TrainerOptions& options, const TrainingFacts& facts);

}  // namespace farandole::trainer
