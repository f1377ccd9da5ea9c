// SPDX-License-Identifier: Apache-2.0
// Checks of the losses and metrics that compare outputs with targets.
#pragma once

#include <fmt/format.h>

#include <string>

#include "farandole/core/error.h"
#include "farandole/trainer/dataset.h"

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

/// @throws InvalidArgument  a batch has another number of targets than of outputs
template <class Scalar>
void check_target_count(const std::string& who, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch) {
  if (batch.targets.size() == outputs.size()) return;
  throw InvalidArgument(fmt::format("{}: {} outputs, but {} targets", who, outputs.size(), batch.targets.size()));
}

}  // namespace farandole::trainer
