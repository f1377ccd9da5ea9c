// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy with a probability for each class.
#pragma once

#include <span>

#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

struct SoftCrossEntropyOptions {
  double label_smoothing = 0;
  std::span<const double> class_weights = {};  ///< empty: 1 for all
  std::span<const float> sample_weights = {};  ///< empty: 1 for all
};

/// Returns the sum over the samples of weight * (sum of t * (log(sum of exp(z)) - z)), where t are the targets,
/// smoothed as those of labels, and weight is the sample's times the mean of the classes' weights by their targets.
/// With targets of 0 and 1 the result is that of labels. Writes the gradient if there is a place for it.
template <class Scalar>
double soft_cross_entropy(const Tensor<Scalar>& logits, const Tensor<Scalar>& targets,
                          const SoftCrossEntropyOptions& options, double scale, Tensor<Scalar>* gradient);

}  // namespace farandole::trainer
