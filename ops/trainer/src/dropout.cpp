// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Dropout final : public Layer<Scalar> {
 public:
  explicit Dropout(double rate) : rate_(rate) {
    if (!(rate >= 0 && rate < 1)) throw InvalidArgument(fmt::format("dropout: rate must be in [0, 1), got {}", rate));
  }

  std::string name() const override { return fmt::format("dropout {}", rate_); }
  Shape prepare(const Shape& input) override { return input; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    if (is_identity(pass)) return kernels.copy(input.size(), input.data(), output.data());
    if (execution_.changes(pass.execution)) factors_ = Tensor<Scalar>(pass.execution.memory());
    factors_.resize(input.samples(), input.shape());
    const DropoutDraw draw{.rate = rate_,
                           .seed = pass.seed,
                           .layer = pass.layer,
                           .training_step = pass.training_step,
                           .step_numbers = pass.step_numbers,
                           .first = static_cast<std::uint64_t>(pass.first_sample * input.sample_elements())};
    kernels.draw_dropout(draw, input.size(), factors_.data());
    kernels.multiply_elements(input.size(), input.data(), factors_.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    const std::int64_t size = output_gradient.size();
    if (is_identity(pass)) return kernels.copy(size, output_gradient.data(), input_gradient->data());
    kernels.multiply_elements(size, output_gradient.data(), factors_.data(), input_gradient->data());
  }

 private:
  bool is_identity(const Pass& pass) const { return !pass.training || rate_ == 0; }

  const double rate_;
  ExecutionMark execution_;
  Tensor<Scalar> factors_;  ///< of the last forward pass in training
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> dropout(double rate) {
  return std::make_unique<Dropout<Scalar>>(rate);
}
template std::unique_ptr<Layer<float>> dropout<float>(double);
template std::unique_ptr<Layer<double>> dropout<double>(double);

}  // namespace farandole::trainer
