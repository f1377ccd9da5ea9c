// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
#include "rectified_layer.h"
#include "scratch.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class Conv2d final : public RectifiableLayer<Scalar> {
 public:
  explicit Conv2d(const Conv2dOptions& options) : options_(options) {
    if (options.channels < 1 || options.kernel < 1 || options.stride < 1 || options.padding < 0) {
      throw InvalidArgument(fmt::format(
          "conv2d: channels, kernel and stride must be at least 1 and padding at least 0, got {}, {}, {} and {}",
          options.channels, options.kernel, options.stride, options.padding));
    }
    if (!std::is_same_v<Scalar, float> && options.library == ConvolutionLibrary::kOneDnn) {
      throw Unsupported("conv2d: oneDNN computes in f32 only; use ConvolutionLibrary::kAutomatic or kEigen for f64");
    }
  }

  std::string name() const override {
    return fmt::format("conv2d {0}x{0}, {1} channels{2}", options_.kernel, options_.channels,
                       options_.bias ? "" : ", no bias");
  }

  Shape prepare(const Shape& input) override {
    geometry_ = convolution_geometry(name(), input, {options_.kernel, options_.stride, options_.padding});
    geometry_.channels = options_.channels;
    drop_convolution();
    return {geometry_.output_height, geometry_.output_width, geometry_.channels};
  }

  std::vector<ParameterSpec> parameters() const override {
    const ConvolutionGeometry& g = geometry_;
    std::vector<ParameterSpec> specs{
        {"weight", {g.kernel, g.kernel, g.inputs, g.channels}, Initial::kUniformFanIn, g.patch_elements(), true}};
    if (options_.bias) specs.push_back({"bias", {g.channels}, Initial::kUniformFanIn, g.patch_elements(), false});
    return specs;
  }

  double flops() const override {
    const ConvolutionGeometry& g = geometry_;
    return 2.0 * static_cast<double>(g.output_positions()) * static_cast<double>(g.patch_elements() * g.channels);
  }

  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  bool can_rectify(const Execution& execution) override {
    convolution(execution);
    return rectifiable_ != nullptr;
  }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    if (input.samples() == 0) return;
    convolution(pass.execution)
        .forward(pass.execution.workspace(), input.samples(), input.data(), weights(), bias(), output.data());
  }

  void forward_rectified(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    if (input.samples() == 0) return;
    rectifiable_->forward_rectified(pass.execution.workspace(), input.samples(), input.data(), weights(), bias(),
                                    output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input.samples() == 0) return clear_gradients(kernels_of<Scalar>(pass.execution), memory_);
    convolution(pass.execution)
        .backward(pass.execution.workspace(), input.samples(), input.data(), weights(), output_gradient.data(),
                  memory_.gradients[0].data(), bias_gradient(),
                  input_gradient == nullptr ? nullptr : input_gradient->data());
  }

  void backward_rectified(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output,
                          const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (input.samples() == 0) return clear_gradients(kernels_of<Scalar>(pass.execution), memory_);
    rectifiable_->backward_rectified(pass.execution.workspace(), input.samples(), input.data(), weights(),
                                     output.data(), output_gradient.data(), memory_.gradients[0].data(),
                                     bias_gradient(), input_gradient == nullptr ? nullptr : input_gradient->data());
  }

 private:
  const Scalar* weights() const { return memory_.parameters[0].data(); }
  const Scalar* bias() const { return options_.bias ? memory_.parameters[1].data() : nullptr; }
  Scalar* bias_gradient() const { return options_.bias ? memory_.gradients[1].data() : nullptr; }

  /// The convolution by the kernels of the execution.
  Convolution<Scalar>& convolution(const Execution& execution) {
    if (execution_.changes(execution)) drop_convolution();
    if (!convolution_) {
      convolution_ = kernels_of<Scalar>(execution).convolution(
          geometry_, {.library = options_.library, .winograd = options_.winograd});
      rectifiable_ = dynamic_cast<RectifiableConvolution<Scalar>*>(convolution_.get());
    }
    return *convolution_;
  }
  void drop_convolution() {
    convolution_ = nullptr;
    rectifiable_ = nullptr;
  }

  Conv2dOptions options_;
  ConvolutionGeometry geometry_;
  ExecutionMark execution_;  ///< whose kernels made `convolution_`
  std::unique_ptr<Convolution<Scalar>> convolution_;
  RectifiableConvolution<Scalar>* rectifiable_ = nullptr;  ///< `convolution_`, if it is one
  LayerMemory<Scalar> memory_;
};

}  // namespace

ConvolutionGeometry convolution_geometry(const std::string& layer, const Shape& input, const KernelWindow& window) {
  if (input.size() != 3) {
    throw InvalidArgument(
        fmt::format("{}: expects images {{height, width, channels}}, the input is {}", layer, describe(input)));
  }
  const std::int64_t kernel = window.kernel, around = 2 * window.padding;
  if (input[0] + around < kernel || input[1] + around < kernel || input[2] < 1) {
    throw InvalidArgument(fmt::format("{}: the kernel is larger than its input {} with {} zeros on each side", layer,
                                      describe(input), window.padding));
  }
  ConvolutionGeometry geometry{input[0], input[1], input[2]};
  geometry.kernel = kernel, geometry.stride = window.stride, geometry.padding = window.padding;
  geometry.output_height = (input[0] + around - kernel) / window.stride + 1;
  geometry.output_width = (input[1] + around - kernel) / window.stride + 1;
  return geometry;
}

template <class Scalar>
std::unique_ptr<Layer<Scalar>> conv2d(const Conv2dOptions& options) {
  return std::make_unique<Conv2d<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> conv2d<float>(const Conv2dOptions&);
template std::unique_ptr<Layer<double>> conv2d<double>(const Conv2dOptions&);

}  // namespace farandole::trainer
