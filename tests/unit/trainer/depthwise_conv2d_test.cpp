// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution against conv2d on one channel at a time, and against central differences.
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

struct DepthwiseCase {
  Shape input;
  DepthwiseConv2dOptions options;
  Shape output;
};
const DepthwiseCase kDepthwiseCases[] = {{{6, 5, 3}, {.kernel = 3}, {4, 3, 3}},
                                         {{6, 5, 17}, {.kernel = 3, .padding = 1}, {6, 5, 17}},
                                         {{7, 8, 2}, {.kernel = 3, .stride = 2, .padding = 1}, {4, 4, 2}},
                                         {{5, 5, 1}, {.kernel = 1, .stride = 3}, {2, 2, 1}},
                                         {{2, 2, 2}, {.kernel = 1, .padding = 2}, {6, 6, 2}}};

/// Channel `channel` of a vector of elements with `channels` channels.
template <class Scalar>
std::vector<Scalar> channel_of(std::span<const Scalar> values, std::int64_t channels, std::int64_t channel) {
  std::vector<Scalar> result;
  for (std::size_t i = static_cast<std::size_t>(channel); i < values.size(); i += static_cast<std::size_t>(channels)) {
    result.push_back(values[i]);
  }
  return result;
}

TEST(DepthwiseConv2d, EachChannelIsAConvolution) {
  for (const DepthwiseCase& c : kDepthwiseCases) {
    LayerHarness<double> harness(depthwise_conv2d<double>(c.options), c.input);
    EXPECT_EQ(harness.output_shape, c.output);
    const std::int64_t channels = c.input[2];
    const Tensor<double> input = normal_tensor<double>(3, c.input, 97);
    const Tensor<double>& output = harness.forward(input);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const Shape image{c.input[0], c.input[1], 1};
      LayerHarness<double> single(
          conv2d<double>(
              {.channels = 1, .kernel = c.options.kernel, .stride = c.options.stride, .padding = c.options.padding}),
          image);
      for (std::size_t p = 0; p < 2; ++p) {
        const auto values = channel_of<double>(harness.parameters[p], channels, channel);
        ASSERT_EQ(values.size(), single.parameters[p].size());
        std::copy(values.begin(), values.end(), single.parameters[p].begin());
      }
      Tensor<double> plane(3, image);
      const auto pixels = channel_of<double>(input.host(), channels, channel);
      std::copy(pixels.begin(), pixels.end(), plane.data());
      const auto got = channel_of<double>(output.host(), channels, channel);
      EXPECT_LT(relative_error(std::span<const double>(got), single.forward(plane).host()), 1e-12);
    }
  }
}

TEST(DepthwiseConv2d, GradientsMatchCentralDifferences) {
  for (const DepthwiseCase& c : kDepthwiseCases) {
    LayerHarness<double> harness(depthwise_conv2d<double>(c.options), c.input);
    check_gradients(harness, normal_tensor<double>(2, c.input, 98));
  }
}

TEST(DepthwiseConv2d, FloatAgreesWithDouble) {
  const Shape image{9, 8, 20};
  LayerHarness<float> single(depthwise_conv2d<float>({.padding = 1}), image);
  LayerHarness<double> twice(depthwise_conv2d<double>({.padding = 1}), image);
  const auto input = normal_tensor<float>(3, image, 99), gradient = normal_tensor<float>(3, image, 100);
  const auto &y = single.forward(input), &dx = single.backward(input, gradient);
  const auto &y2 = twice.forward(converted<double>(input)),
             &dx2 = twice.backward(converted<double>(input), converted<double>(gradient));
  EXPECT_LT(relative_error(y.host(), y2.host()), 1e-5);
  EXPECT_LT(relative_error(dx.host(), dx2.host()), 1e-5);
  for (std::size_t p = 0; p < 2; ++p) {
    EXPECT_LT(relative_error(std::span<const float>(single.gradients[p]), std::span<const double>(twice.gradients[p])),
              1e-5);
  }
}

TEST(DepthwiseConv2d, BitsDoNotDependOnThePlaceInTheBatch) {
  LayerHarness<float> harness(depthwise_conv2d<float>({.padding = 1}), {4, 3, 5});
  check_independence_of_split(harness, normal_tensor<float>(7, {4, 3, 5}, 101));
}

TEST(DepthwiseConv2d, ImpossibleOptionsAndInputsAreRefused) {
  expect_invalid([] { depthwise_conv2d<float>({.kernel = 0}); }, {"depthwise_conv2d", "at least 1", "0, 1 and 0"});
  expect_invalid([] { depthwise_conv2d<float>({.stride = 0}); }, {"depthwise_conv2d", "at least 1"});
  expect_invalid([] { depthwise_conv2d<float>({})->prepare({16}); },
                 {"depthwise_conv2d 3x3", "{height, width, channels}", "16"});
  expect_invalid([] { depthwise_conv2d<float>({.kernel = 5})->prepare({4, 4, 2}); }, {"kernel is larger", "4x4x2"});
}

}  // namespace
}  // namespace farandole::trainer
