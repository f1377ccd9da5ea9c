// SPDX-License-Identifier: Apache-2.0
// Layers that compute the ReLU behind them in their own passes.
#pragma once

#include "farandole/trainer/layer.h"

namespace farandole::trainer {

/// A layer that can apply max(x, 0) to its output while it writes the output, and mask the output's gradient while it
/// reads the gradient. If a ReLU is the only user of the layer's value, a graph computes both at once: neither the
/// value before the ReLU nor its gradient has memory. The bits are those of two layers.
template <class Scalar>
class RectifiableLayer : public Layer<Scalar> {
 public:
  /// True if both at once are faster. The answer is the same for all passes of an execution.
  virtual bool can_rectify(const Execution& execution) = 0;
  /// As `forward`, followed by the ReLU.
  virtual void forward_rectified(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) = 0;
  /// As `backward`, after the ReLU's. @param output  of forward_rectified   @param output_gradient  of that output
  virtual void backward_rectified(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                                  const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) = 0;
};

/// True for the layer that `relu` makes.
template <class Scalar>
bool is_relu(const Layer<Scalar>& layer);

}  // namespace farandole::trainer
