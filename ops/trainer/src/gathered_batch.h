// SPDX-License-Identifier: Apache-2.0
// Checks of the batches that a data set has gathered.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farandole/trainer/dataset.h"

namespace farandole::trainer {

/// Checks that the inputs of a batch are those that the data set was asked for: their number, and the shape that the
/// data set declares. @param what  the data, for the message: "the training data"   @throws InvalidArgument
template <class Scalar>
void check_gathered_inputs(const Dataset& data, const std::string& what, std::span<const std::uint32_t> samples,
                           const Batch<Scalar>& batch);

/// As check_gathered_inputs, and checks the number of labels, the number and shape of targets, and the number and
/// values of weights. The labels of samples that have probabilities of the classes may be missing. Reads the weights
/// only, so the cost is some 20 ns and 1 ns per sample with a weight. Losses check the values of labels.
/// @throws InvalidArgument  names the data, the expected and the actual numbers; of a wrong weight also the sample
template <class Scalar>
void check_gathered(const Dataset& data, const std::string& what, std::span<const std::uint32_t> samples,
                    const Batch<Scalar>& batch);

}  // namespace farandole::trainer
