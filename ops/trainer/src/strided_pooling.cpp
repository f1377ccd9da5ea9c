// SPDX-License-Identifier: Apache-2.0
// Pooling over windows that overlap, or that reach over the edge of the image. Windows that do neither have the faster
// kernels of pooling.cpp.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class StridedPool : public Layer<Scalar> {
 public:
  StridedPool(std::string kind, const Pool2dOptions& options) : kind_(std::move(kind)) {
    windows_.size = options.size;
    windows_.stride = options.stride;
    windows_.padding = options.padding;
  }
  std::string name() const override {
    const StridedWindows& w = windows_;
    return fmt::format("{0} {1}x{1}, stride {2}, padding {3}", kind_, w.size, w.stride, w.padding);
  }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  Shape prepare(const Shape& input) override {
    StridedWindows& w = windows_;
    const std::int64_t around = 2 * w.padding;
    if (input.size() != 3 || input[0] + around < w.size || input[1] + around < w.size || input[2] < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects images {{height, width, channels}} that are, with the padding, at least {}x{}; the "
                      "input is {}",
                      name(), w.size, w.size, trainer::describe(input)));
    }
    w.height = input[0], w.width = input[1], w.channels = input[2];
    w.output_height = (w.height + around - w.size) / w.stride + 1;
    w.output_width = (w.width + around - w.size) / w.stride + 1;
    return {w.output_height, w.output_width, w.channels};
  }

 protected:
  std::string kind_;
  StridedWindows windows_;
};

template <class Scalar>
class StridedMaxPool final : public StridedPool<Scalar> {
 public:
  explicit StridedMaxPool(const Pool2dOptions& options) : StridedPool<Scalar>("max_pool2d", options) {}

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const auto count = static_cast<std::size_t>(output.size());
    if (execution_.changes(pass.execution)) places_ = Buffer();
    if (places_.count() < count) places_ = allocate(pass.execution.memory(), count, DType::kI32);
    kernels_of<Scalar>(pass.execution)
        .images()
        .max_pool(this->windows_, input.samples(), input.data(), output.data(), places());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .images()
        .max_pool_backward(this->windows_, input.samples(), places(), output_gradient.data(), input_gradient->data());
  }

 private:
  std::int32_t* places() { return places_.as<std::int32_t>(); }

  ExecutionMark execution_;
  Buffer places_;  ///< pixel of each maximum of the last forward pass
};

template <class Scalar>
class StridedAveragePool final : public StridedPool<Scalar> {
 public:
  explicit StridedAveragePool(const Pool2dOptions& options) : StridedPool<Scalar>("average_pool2d", options) {}

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution)
        .images()
        .average_pool(this->windows_, input.samples(), input.data(), output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input_gradient == nullptr) return;
    kernels_of<Scalar>(pass.execution)
        .images()
        .average_pool_backward(this->windows_, input.samples(), output_gradient.data(), input_gradient->data());
  }
};

/// Returns the options with their stride. @throws InvalidArgument
Pool2dOptions checked(const char* kind, Pool2dOptions options) {
  if (options.size < 1 || options.stride < 0 || options.padding < 0 || options.padding >= options.size) {
    throw InvalidArgument(
        fmt::format("{}: the size must be at least 1, the stride at least 0, and the padding at least 0 and less than "
                    "the size; got {}, {} and {}",
                    kind, options.size, options.stride, options.padding));
  }
  if (options.stride == 0) options.stride = options.size;
  return options;
}

bool is_plain(const Pool2dOptions& options) {
  return options.stride == options.size && options.padding == 0;
}

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> max_pool2d(const Pool2dOptions& options) {
  const Pool2dOptions all = checked("max_pool2d", options);
  if (is_plain(all)) return max_pool2d<Scalar>(all.size);
  return std::make_unique<StridedMaxPool<Scalar>>(all);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> average_pool2d(const Pool2dOptions& options) {
  const Pool2dOptions all = checked("average_pool2d", options);
  if (is_plain(all)) return average_pool2d<Scalar>(all.size);
  return std::make_unique<StridedAveragePool<Scalar>>(all);
}
template std::unique_ptr<Layer<float>> max_pool2d<float>(const Pool2dOptions&);
template std::unique_ptr<Layer<double>> max_pool2d<double>(const Pool2dOptions&);
template std::unique_ptr<Layer<float>> average_pool2d<float>(const Pool2dOptions&);
template std::unique_ptr<Layer<double>> average_pool2d<double>(const Pool2dOptions&);

}  // namespace farandole::trainer
