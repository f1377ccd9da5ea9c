// SPDX-License-Identifier: Apache-2.0
// Element-wise layers.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
#include "rectified_layer.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class ElementWise final : public Layer<Scalar> {
 public:
  ElementWise(std::string name, Activation activation) : name_(std::move(name)), activation_(activation) {}
  std::string name() const override { return name_; }
  ActivationKind kind() const { return activation_.kind; }
  Shape prepare(const Shape& input) override { return input; }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution).activate(activation_, input.size(), input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .activate_backward(activation_, output.size(), input.data(), output.data(), output_gradient.data(),
                           input_gradient->data());
  }

 private:
  const std::string name_;
  const Activation activation_;
};

template <class Scalar>
std::unique_ptr<Layer<Scalar>> element_wise(std::string name, Activation activation) {
  return std::make_unique<ElementWise<Scalar>>(std::move(name), activation);
}

}  // namespace

template <class Scalar>
bool is_relu(const Layer<Scalar>& layer) {
  const auto* const activation = dynamic_cast<const ElementWise<Scalar>*>(&layer);
  return activation != nullptr && activation->kind() == ActivationKind::kRelu;
}
template bool is_relu(const Layer<float>&);
template bool is_relu(const Layer<double>&);

template <class Scalar>
std::unique_ptr<Layer<Scalar>> relu() {
  return element_wise<Scalar>("relu", {ActivationKind::kRelu});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> leaky_relu(double slope) {
  if (!std::isfinite(slope)) throw InvalidArgument(fmt::format("leaky_relu: the slope must be finite, got {}", slope));
  return element_wise<Scalar>(fmt::format("leaky_relu {}", static_cast<Scalar>(slope)),
                              {ActivationKind::kLeakyRelu, slope});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> gelu() {
  return element_wise<Scalar>("gelu", {ActivationKind::kGelu});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> silu() {
  return element_wise<Scalar>("silu", {ActivationKind::kSilu});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> sigmoid() {
  return element_wise<Scalar>("sigmoid", {ActivationKind::kSigmoid});
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> hyperbolic_tangent() {
  return element_wise<Scalar>("hyperbolic_tangent", {ActivationKind::kHyperbolicTangent});
}

template std::unique_ptr<Layer<float>> relu<float>();
template std::unique_ptr<Layer<double>> relu<double>();
template std::unique_ptr<Layer<float>> leaky_relu<float>(double);
template std::unique_ptr<Layer<double>> leaky_relu<double>(double);
template std::unique_ptr<Layer<float>> gelu<float>();
template std::unique_ptr<Layer<double>> gelu<double>();
template std::unique_ptr<Layer<float>> silu<float>();
template std::unique_ptr<Layer<double>> silu<double>();
template std::unique_ptr<Layer<float>> sigmoid<float>();
template std::unique_ptr<Layer<double>> sigmoid<double>();
template std::unique_ptr<Layer<float>> hyperbolic_tangent<float>();
template std::unique_ptr<Layer<double>> hyperbolic_tangent<double>();

}  // namespace farandole::trainer
