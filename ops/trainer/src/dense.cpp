// SPDX-License-Identifier: Apache-2.0
// Fully connected layer, y = x W + b, by a matrix product.
#include <fmt/format.h>

#include <algorithm>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "matrix_product.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Dense final : public Layer<Scalar> {
 public:
  explicit Dense(std::int64_t units) : units_(units) {
    if (units < 1) throw InvalidArgument(fmt::format("dense: units must be at least 1, got {}", units));
  }

  std::string name() const override { return fmt::format("dense, {} units", units_); }

  Shape prepare(const Shape& input) override {
    inputs_ = elements(input);
    if (inputs_ < 1) throw InvalidArgument(fmt::format("{}: the input {} is empty", name(), trainer::describe(input)));
    return {units_};
  }

  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {inputs_, units_}, Initial::kUniformFanIn, inputs_, true},
            {"bias", {units_}, Initial::kUniformFanIn, inputs_, false}};
  }

  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t samples = input.samples();
    if (samples == 0) return;
    fill_rows<Scalar>(memory_.parameters[1], samples, output.data());
    multiply(Factor<Scalar>{input.data(), samples, inputs_}, weights(), true, output.data());
  }

  void backward(const Pass&, const Tensor<Scalar>& input, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    const std::int64_t samples = input.samples();
    const std::span<Scalar> weight_gradient = memory_.gradients[0];
    sum_rows(output_gradient.data(), samples, memory_.gradients[1]);
    if (samples == 0) {
      std::fill(weight_gradient.begin(), weight_gradient.end(), Scalar{0});
      return;
    }
    const Factor<Scalar> gradient{output_gradient.data(), samples, units_};
    multiply(Factor<Scalar>{input.data(), samples, inputs_, true}, gradient, false, weight_gradient.data());
    if (input_gradient == nullptr) return;
    multiply(gradient, weights().transpose(), false, input_gradient->data());
  }

 private:
  Factor<Scalar> weights() const { return {memory_.parameters[0].data(), inputs_, units_}; }

  std::int64_t units_, inputs_ = 0;
  LayerMemory<Scalar> memory_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> dense(std::int64_t units) {
  return std::make_unique<Dense<Scalar>>(units);
}
template std::unique_ptr<Layer<float>> dense<float>(std::int64_t);
template std::unique_ptr<Layer<double>> dense<double>(std::int64_t);

}  // namespace farandole::trainer
