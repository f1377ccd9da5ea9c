// SPDX-License-Identifier: Apache-2.0
// Pooling over windows that do not overlap. Rows and columns left over at the right and bottom edge belong to no
// window.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Pool final : public Layer<Scalar> {
 public:
  Pool(std::string kind, Pooling pooling, std::int64_t size) : kind_(std::move(kind)), pooling_(pooling) {
    if (size < 1) throw InvalidArgument(fmt::format("{}: the window must be at least 1x1, got {}", kind_, size));
    windows_.size = size;
  }
  std::string name() const override { return fmt::format("{0} {1}x{1}", kind_, windows_.size); }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  Shape prepare(const Shape& input) override {
    const std::int64_t size = windows_.size;
    if (input.size() != 3 || input[0] < size || input[1] < size) {
      throw InvalidArgument(
          fmt::format("{0}: expects images {{height, width, channels}} of at least {1}x{1}, the input is {2}", name(),
                      size, trainer::describe(input)));
    }
    windows_ = {size, input[0], input[1], input[2], input[0] / size, input[1] / size};
    return {windows_.output_height, windows_.output_width, windows_.channels};
  }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution).images().pool(pooling_, windows_, input.samples(), input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .images()
        .pool_backward(pooling_, windows_, input.samples(), input.data(), output.data(), output_gradient.data(),
                       input_gradient->data());
  }

 private:
  const std::string kind_;
  const Pooling pooling_;
  PoolingWindows windows_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> max_pool2d(std::int64_t size) {
  return std::make_unique<Pool<Scalar>>("max_pool2d", Pooling::kMaximum, size);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> average_pool2d(std::int64_t size) {
  return std::make_unique<Pool<Scalar>>("average_pool2d", Pooling::kAverage, size);
}
template std::unique_ptr<Layer<float>> max_pool2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> max_pool2d<double>(std::int64_t);
template std::unique_ptr<Layer<float>> average_pool2d<float>(std::int64_t);
template std::unique_ptr<Layer<double>> average_pool2d<double>(std::int64_t);

}  // namespace farandole::trainer
