// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "farandole/trainer/layer.h"

namespace farandole::trainer {

/// A layer of a program's own that computes as the layer that it contains. Tests derive from it.
class ForwardingLayer : public Layer<float> {
 public:
  explicit ForwardingLayer(std::unique_ptr<Layer<float>> inner) : inner_(std::move(inner)) {}
  Shape prepare(const Shape& input) override { return inner_->prepare(input); }
  void forward(const Pass& pass, const Tensor<float>& input, Tensor<float>& output) override {
    inner_->forward(pass, input, output);
  }
  void backward(const Pass& pass, const Tensor<float>& input, const Tensor<float>& output,
                const Tensor<float>& output_gradient, Tensor<float>* input_gradient) override {
    inner_->backward(pass, input, output, output_gradient, input_gradient);
  }

 private:
  std::unique_ptr<Layer<float>> inner_;
};

}  // namespace farandole::trainer
