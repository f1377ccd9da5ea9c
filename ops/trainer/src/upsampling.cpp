// SPDX-License-Identifier: Apache-2.0
// Upsampling: each pixel of the input is a square of pixels of the output.
#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Upsample2d final : public Layer<Scalar> {
 public:
  explicit Upsample2d(std::int64_t factor) {
    if (factor < 1) throw InvalidArgument(fmt::format("upsample2d: the factor must be at least 1, got {}", factor));
    sizes_.factor = factor;
  }
  std::string name() const override { return fmt::format("upsample2d {0}x{0}", sizes_.factor); }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  Shape prepare(const Shape& input) override {
    if (input.size() != 3 || elements(input) < 1) {
      throw InvalidArgument(fmt::format("{}: expects images {{height, width, channels}}, the input is {}", name(),
                                        trainer::describe(input)));
    }
    sizes_ = {sizes_.factor, input[0], input[1], input[2]};
    return {sizes_.factor * sizes_.height, sizes_.factor * sizes_.width, sizes_.channels};
  }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution).images().upsample(sizes_, input.samples(), input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>&, const Tensor<Scalar>&, const Tensor<Scalar>& output_gradient,
                Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .images()
        .upsample_backward(sizes_, output_gradient.samples(), output_gradient.data(), input_gradient->data());
  }

 private:
  Upsampling sizes_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> upsample2d(std::int64_t factor) {
  return std::make_unique<Upsample2d<Scalar>>(factor);
}
template std::unique_ptr<Layer<float>> upsample2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> upsample2d<double>(std::int64_t);

}  // namespace farandole::trainer
