// SPDX-License-Identifier: Apache-2.0
// Checks of the losses and metrics that compare outputs with targets.
#pragma once

#include <fmt/format.h>

#include <string>

#include "farandole/core/error.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// @param who  "the loss mean_squared_error"   @param what  name of the data   @throws InvalidArgument  the data have
/// no targets of the shape of the model's output
inline void check_targets(const std::string& who, const Shape& output, const Dataset& data, const std::string& what) {
  if (data.target_shape() == output) return;
  const std::string found =
      data.target_shape().empty() ? "no targets" : fmt::format("targets of shape {}", describe(data.target_shape()));
  throw InvalidArgument(fmt::format("{} needs targets of shape {}, as the model's output, but {} have {}", who,
                                    describe(output), what, found));
}

/// @throws InvalidArgument  outputs or targets lie in other memory than the execution's, or their numbers differ
template <class Scalar>
void check_batch_targets(const std::string& who, const Execution& execution, const Tensor<Scalar>& outputs,
                         const BatchView<Scalar>& batch) {
  execution.require(outputs.space(), "the output of the model");
  execution.require(batch.targets.space(), "the tensor of targets");
  if (batch.targets.size() == outputs.size()) return;
  throw InvalidArgument(fmt::format("{}: {} outputs, but {} targets", who, outputs.size(), batch.targets.size()));
}

}  // namespace farandole::trainer
