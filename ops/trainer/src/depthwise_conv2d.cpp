// SPDX-License-Identifier: Apache-2.0
// Convolution of each channel by a kernel of its own. With channels last, the channels of a pixel are a vector, and the
// loop over them is the inner one.
#include <fmt/format.h>

#include <algorithm>

#include "convolution.h"
#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "matrix_product.h"
#include "scratch.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// Calls visit(output offset, input offset, tap) for each pair of an output pixel and an element ("tap") of its window
/// that lies inside the image. Offsets are in elements; output pixels come in order.
template <class Visit>
FARANDOLE_INLINED inline void for_each_tap(const ConvolutionGeometry& g, std::int64_t samples, const Visit& visit) {
  for (std::int64_t row = 0; row < samples * g.output_height; ++row) {
    const std::int64_t sample = row / g.output_height, top = row % g.output_height * g.stride - g.padding;
    for (std::int64_t x = 0; x < g.output_width; ++x) {
      const std::int64_t left = x * g.stride - g.padding, to = (row * g.output_width + x) * g.channels;
      for (std::int64_t tap = 0; tap < g.kernel * g.kernel; ++tap) {
        const std::int64_t from_y = top + tap / g.kernel, from_x = left + tap % g.kernel;
        if (from_y < 0 || from_y >= g.height || from_x < 0 || from_x >= g.width) continue;
        visit(to, ((sample * g.height + from_y) * g.width + from_x) * g.channels, tap);
      }
    }
  }
}

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

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    const ConvolutionGeometry g = geometry_;
    const std::int64_t samples = input.samples();
    const Scalar *from = input.data(), *weights = memory_.parameters[0].data();
    Scalar* to = output.data();
    fill_rows<Scalar>(memory_.parameters[1].host(), samples * g.output_positions(), to);
    vectorized([=]() FARANDOLE_INLINED {
      for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
        const Scalar* __restrict x = from + in, * __restrict w = weights + tap * g.channels;
        Scalar* __restrict y = to + out;
        for (std::int64_t c = 0; c < g.channels; ++c) y[c] += x[c] * w[c];
      });
    });
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    add_weight_gradient(pass, input, output_gradient);
    sum_rows(output_gradient.data(), input.samples() * geometry_.output_positions(), memory_.gradients[1].host());
    if (input_gradient == nullptr) return;
    const ConvolutionGeometry g = geometry_;
    const std::int64_t samples = input.samples();
    const Scalar *gradient = output_gradient.data(), *weights = memory_.parameters[0].data();
    Scalar* to = input_gradient->data();
    std::fill_n(to, input_gradient->size(), Scalar{0});
    vectorized([=]() FARANDOLE_INLINED {
      for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
        const Scalar* __restrict dy = gradient + out, * __restrict w = weights + tap * g.channels;
        Scalar* __restrict dx = to + in;
        for (std::int64_t c = 0; c < g.channels; ++c) dx[c] += dy[c] * w[c];
      });
    });
  }

 private:
  /// Sums in double, because a weight has as many terms as there are pixels in the batch.
  void add_weight_gradient(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient) {
    const ConvolutionGeometry g = geometry_;
    const std::int64_t samples = input.samples();
    const Scalar *from = input.data(), *gradient = output_gradient.data();
    const std::span<Scalar> result = memory_.gradients[0].host();
    Workspace::Scope scope(pass.execution.workspace());
    const std::span<double> sums = take_zeros<double>(scope, result.size());
    double* to = sums.data();
    vectorized([=]() FARANDOLE_INLINED {
      for_each_tap(g, samples, [=](std::int64_t out, std::int64_t in, std::int64_t tap) FARANDOLE_INLINED {
        const Scalar* __restrict x = from + in, * __restrict dy = gradient + out;
        double* __restrict sum = to + tap * g.channels;
        for (std::int64_t c = 0; c < g.channels; ++c) sum[c] += static_cast<double>(x[c]) * static_cast<double>(dy[c]);
      });
    });
    std::ranges::transform(sums, result.begin(), [](double sum) { return static_cast<Scalar>(sum); });
  }

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
