// SPDX-License-Identifier: Apache-2.0
// Convolution of each channel by a kernel of its own.
#include <fmt/format.h>

#include "convolution.h"
#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "kernels/kernels.h"
#include "scratch.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
class DepthwiseConv2d final : public Layer<Scalar> {
 public:
  explicit DepthwiseConv2d(const DepthwiseConv2dOptions& options) : options_(options) {
    if (options.kernel < 1 || options.stride < 1 || options.padding < 0) {
      throw InvalidArgument(fmt::format(
          "depthwise_conv2d: kernel and stride must be at least 1 and padding at least 0, got {}, {} and {}",
          options.kernel, options.stride, options.padding));
    }
  }

  std::string name() const override {
    return fmt::format("depthwise_conv2d {0}x{0}, stride {1}, padding {2}", options_.kernel, options_.stride,
                       options_.padding);
  }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  Shape prepare(const Shape& input) override {
    geometry_ = convolution_geometry(name(), input, {options_.kernel, options_.stride, options_.padding});
    geometry_.channels = geometry_.inputs;
    return {geometry_.output_height, geometry_.output_width, geometry_.channels};
  }
  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t kernel = geometry_.kernel, channels = geometry_.channels;
    return {{"weight", {kernel, kernel, channels}, Initial::kUniformFanIn, kernel * kernel, true},
            {"bias", {channels}, Initial::kUniformFanIn, kernel * kernel, false}};
  }
  double flops() const override {
    const ConvolutionGeometry& g = geometry_;
    return 2.0 * static_cast<double>(g.output_positions() * g.kernel * g.kernel * g.channels);
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    kernels_of<Scalar>(pass.execution)
        .images()
        .depthwise(geometry_, input.samples(), input.data(), memory_.parameters[0].data(), memory_.parameters[1].data(),
                   output.data());
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    const Kernels<Scalar>& kernels = kernels_of<Scalar>(pass.execution);
    const std::int64_t samples = input.samples();
    if (samples == 0) return clear_gradients(kernels, memory_);
    kernels.images().depthwise_weights(pass.execution.workspace(), geometry_, samples, input.data(),
                                       output_gradient.data(), memory_.gradients[0].data());
    kernels.sum_rows(output_gradient.data(), samples * geometry_.output_positions(), geometry_.channels,
                     memory_.gradients[1].data());
    if (input_gradient == nullptr) return;
    kernels.images().depthwise_backward(geometry_, samples, output_gradient.data(), memory_.parameters[0].data(),
                                        input_gradient->data());
  }

 private:
  const DepthwiseConv2dOptions options_;
  ConvolutionGeometry geometry_;
  LayerMemory<Scalar> memory_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> depthwise_conv2d(const DepthwiseConv2dOptions& options) {
  return std::make_unique<DepthwiseConv2d<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> depthwise_conv2d<float>(const DepthwiseConv2dOptions&);
template std::unique_ptr<Layer<double>> depthwise_conv2d<double>(const DepthwiseConv2dOptions&);

}  // namespace farandole::trainer
