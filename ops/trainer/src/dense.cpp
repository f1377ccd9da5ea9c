// SPDX-License-Identifier: Apache-2.0
// Fully connected layer, y = x W + b, by a matrix product.
#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
#include "scratch.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Dense final : public Layer<Scalar> {
 public:
  Dense(std::int64_t units, const DenseOptions& options) : units_(units), options_(options) {
    if (units < 1) throw InvalidArgument(fmt::format("dense: units must be at least 1, got {}", units));
  }

  std::string name() const override {
    return fmt::format("dense, {} units{}{}", units_, options_.per_position ? " per position" : "",
                       options_.bias ? "" : ", no bias");
  }

  Shape prepare(const Shape& input) override {
    if (input.empty() || elements(input) < 1) {
      throw InvalidArgument(fmt::format("{}: the input {} is empty", name(), trainer::describe(input)));
    }
    inputs_ = options_.per_position ? input.back() : elements(input);
    rows_per_sample_ = elements(input) / inputs_;
    if (!options_.per_position) return {units_};
    Shape output = input;
    output.back() = units_;
    return output;
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs{{"weight", {inputs_, units_}, Initial::kUniformFanIn, inputs_, true}};
    if (options_.bias) specs.push_back({"bias", {units_}, Initial::kUniformFanIn, inputs_, false});
    return specs;
  }

  double flops() const override {
    return 2.0 * static_cast<double>(rows_per_sample_) * static_cast<double>(inputs_) * static_cast<double>(units_);
  }

  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const std::int64_t rows = input.samples() * rows_per_sample_;
    if (rows == 0) return;
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    if (options_.bias) kernels.fill_rows(memory_.parameters[1].data(), rows, units_, output.data());
    kernels.multiply({input.data(), rows, inputs_}, weights(), options_.bias, output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const std::int64_t rows = input.samples() * rows_per_sample_;
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    if (rows == 0) return clear_gradients(kernels, memory_);
    if (options_.bias) kernels.sum_rows(output_gradient.data(), rows, units_, memory_.gradients[1].data());
    Workspace::Scope scope(pass.execution.workspace());
    const Factor<Scalar> gradient = kernels.rounded(scope, {output_gradient.data(), rows, units_});
    kernels.multiply({input.data(), rows, inputs_, true}, gradient, false, memory_.gradients[0].data());
    if (input_gradient == nullptr) return;
    kernels.multiply(gradient, weights().transpose(), false, input_gradient->data());
  }

 private:
  Factor<Scalar> weights() const { return {memory_.parameters[0].data(), inputs_, units_}; }

  const std::int64_t units_;
  const DenseOptions options_;
  std::int64_t inputs_ = 0, rows_per_sample_ = 0;
  LayerMemory<Scalar> memory_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> dense(std::int64_t units, const DenseOptions& options) {
  return std::make_unique<Dense<Scalar>>(units, options);
}
template std::unique_ptr<Layer<float>> dense<float>(std::int64_t, const DenseOptions&);
template std::unique_ptr<Layer<double>> dense<double>(std::int64_t, const DenseOptions&);

}  // namespace farandole::trainer
