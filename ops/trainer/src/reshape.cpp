// SPDX-License-Identifier: Apache-2.0
// Layers that change the shape of samples: a copy with another shape, and the mean over positions.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Reshape final : public Layer<Scalar> {
 public:
  /// @param shape  empty: a vector of all elements
  explicit Reshape(std::optional<Shape> shape) : shape_(std::move(shape)) {}

  std::string name() const override {
    return shape_ ? fmt::format("reshape {}", trainer::describe(*shape_)) : std::string("flatten");
  }
  Shape prepare(const Shape& input) override {
    if (!shape_) return {elements(input)};
    if (elements(*shape_) != elements(input)) {
      throw InvalidArgument(fmt::format("{}: expects samples of {} elements, the input {} has {}", name(),
                                        elements(*shape_), trainer::describe(input), elements(input)));
    }
    return *shape_;
  }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution).copy(input.size(), input.data(), output.data());
  }
  void backward(const Pass& pass, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution).copy(output_gradient.size(), output_gradient.data(), input_gradient->data());
  }

 private:
  const std::optional<Shape> shape_;
};

template <class Scalar>
class GlobalAveragePool final : public Layer<Scalar> {
 public:
  std::string name() const override { return "global_average_pool"; }
  Shape prepare(const Shape& input) override {
    if (input.size() < 2 || elements(input) < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects samples of positions and channels, such as {{height, width, "
                      "channels}} or {{length, channels}}, the input is {}",
                      name(), trainer::describe(input)));
    }
    channels_ = input.back();
    positions_ = elements(input) / channels_;
    return {channels_};
  }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution)
        .images()
        .average_positions({input.samples(), positions_, channels_}, input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .images()
        .average_positions_backward({input.samples(), positions_, channels_}, output_gradient.data(),
                                    input_gradient->data());
  }

 private:
  std::int64_t positions_ = 0, channels_ = 0;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> global_average_pool() {
  return std::make_unique<GlobalAveragePool<Scalar>>();
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> flatten() {
  return std::make_unique<Reshape<Scalar>>(std::nullopt);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> reshape(const Shape& shape) {
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 1; })) {
    throw InvalidArgument(fmt::format("reshape: every extent must be at least 1, got {}", trainer::describe(shape)));
  }
  return std::make_unique<Reshape<Scalar>>(shape);
}
template std::unique_ptr<Layer<float>> global_average_pool<float>();
template std::unique_ptr<Layer<double>> global_average_pool<double>();
template std::unique_ptr<Layer<float>> flatten<float>();
template std::unique_ptr<Layer<double>> flatten<double>();
template std::unique_ptr<Layer<float>> reshape<float>(const Shape&);
template std::unique_ptr<Layer<double>> reshape<double>(const Shape&);

}  // namespace farandole::trainer
