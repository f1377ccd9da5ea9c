// SPDX-License-Identifier: Apache-2.0
// Compares convolutions by oneDNN and by Eigen with each other and with the definition.
#include <string>

#include "layer_harness.h"

namespace farandole::trainer {
namespace {

struct ConvolutionCase {
  std::int64_t samples;
  Shape input;
  Conv2dOptions options;
};

const ConvolutionCase kCases[] = {
    {3, {28, 28, 1}, {.channels = 32}},
    {40, {26, 26, 32}, {.channels = 64}},  // several chunks, the last one shorter
    {2, {13, 11, 16}, {.channels = 32, .padding = 1}},
    {1, {7, 9, 48}, {.channels = 16, .padding = 2}},
    {5, {12, 10, 3}, {.channels = 10, .kernel = 5, .stride = 2, .padding = 2}},
    {2, {9, 9, 16}, {.channels = 16, .stride = 2}},
    {4, {6, 6, 20}, {.channels = 7, .kernel = 1}},
    {2, {4, 4, 8}, {.channels = 8, .kernel = 4}},
};

std::string describe(const ConvolutionCase& c) {
  return std::to_string(c.samples) + " x " + trainer::describe(c.input) + " to " + std::to_string(c.options.channels) +
         " channels, kernel " + std::to_string(c.options.kernel) + ", seed " + std::to_string(kTestSeed);
}

/// Outputs and gradients of one convolution, all in double.
struct Result {
  Tensor<double> output, input_gradient;
  std::vector<double> weight_gradient, bias_gradient;
};

template <class Scalar>
Result compute(const ConvolutionCase& c, ConvolutionLibrary library, bool winograd) {
  Conv2dOptions options = c.options;
  options.library = library;
  options.winograd = winograd;
  LayerHarness<Scalar> harness(conv2d<Scalar>(options), c.input);
  for (std::size_t p = 0; p < 2; ++p) {  // the same values in both types
    std::vector<float> values(harness.parameters[p].size());
    fill_normal(std::span(values), 20 + p, p == 0 ? 0.1 : 1);
    std::copy(values.begin(), values.end(), harness.parameters[p].begin());
  }
  const auto input = converted<Scalar>(normal_tensor<float>(c.samples, c.input, 22));
  const auto gradient = converted<Scalar>(normal_tensor<float>(c.samples, harness.output_shape, 23));
  harness.forward(input);
  harness.backward(input, gradient);
  return {converted<double>(harness.output),
          converted<double>(harness.input_gradient),
          {harness.gradients[0].begin(), harness.gradients[0].end()},
          {harness.gradients[1].begin(), harness.gradients[1].end()}};
}

void expect_close(const Result& left, const Result& right, double tolerance) {
  EXPECT_LT(relative_error(std::as_const(left.output).host(), std::as_const(right.output).host()), tolerance);
  EXPECT_LT(relative_error(std::as_const(left.input_gradient).host(), std::as_const(right.input_gradient).host()),
            tolerance);
  EXPECT_LT(relative_error(std::span(left.weight_gradient), std::span(right.weight_gradient)), tolerance);
  EXPECT_LT(relative_error(std::span(left.bias_gradient), std::span(right.bias_gradient)), tolerance);
}

/// By the definition, one product after the other.
Tensor<double> by_definition(const ConvolutionCase& c, const std::vector<double>& weights,
                             const std::vector<double>& bias, const Tensor<double>& input, const Shape& output_shape) {
  Tensor<double> output(c.samples, output_shape);
  const Conv2dOptions& o = c.options;
  const std::int64_t height = c.input[0], width = c.input[1], inputs = c.input[2];
  double* value = output.data();
  for (std::int64_t n = 0; n < c.samples; ++n) {
    for (std::int64_t y = 0; y < output_shape[0]; ++y) {
      for (std::int64_t x = 0; x < output_shape[1]; ++x) {
        for (std::int64_t channel = 0; channel < o.channels; ++channel, ++value) {
          *value = bias[static_cast<std::size_t>(channel)];
          for (std::int64_t k = 0; k < o.kernel * o.kernel * inputs; ++k) {
            const std::int64_t iy = y * o.stride - o.padding + k / inputs / o.kernel;
            const std::int64_t ix = x * o.stride - o.padding + k / inputs % o.kernel;
            if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
            *value += input.data()[((n * height + iy) * width + ix) * inputs + k % inputs] *
                      weights[static_cast<std::size_t>(k * o.channels + channel)];
          }
        }
      }
    }
  }
  return output;
}

TEST(Conv2d, EigenAgreesWithTheDefinition) {
  for (const ConvolutionCase& c : kCases) {
    if (c.samples > 10) continue;
    SCOPED_TRACE(describe(c));
    LayerHarness<double> harness(conv2d<double>(c.options), c.input);
    const auto input = normal_tensor<double>(c.samples, c.input, 24);
    harness.forward(input);
    const auto expected = by_definition(c, harness.parameters[0], harness.parameters[1], input, harness.output_shape);
    EXPECT_LT(relative_error(std::as_const(harness.output).host(), std::as_const(expected).host()), 1e-13);
  }
}

// Rounding: a sum of n products errs by about sqrt(n) * 2^-24 relative to its size; the largest of many by about five
// times as much. The largest n here is 40 * 24 * 24 of a weight's gradient: 240 * 6e-8 * 5 = 7e-5.
TEST(Conv2d, LibrariesAgreeToRounding) {
  for (const ConvolutionCase& c : kCases) {
    SCOPED_TRACE(describe(c));
    const Result exact = compute<double>(c, ConvolutionLibrary::kEigen, false);
    expect_close(compute<float>(c, ConvolutionLibrary::kEigen, false), exact, 7e-5);
    expect_close(compute<float>(c, ConvolutionLibrary::kOneDnn, false), exact, 7e-5);
    expect_close(compute<float>(c, ConvolutionLibrary::kOneDnn, true), exact, 7e-5);
  }
}

TEST(Conv2d, InputGradientCanBeLeftOut) {
  for (const auto library : {ConvolutionLibrary::kOneDnn, ConvolutionLibrary::kEigen}) {
    LayerHarness<float> harness(conv2d<float>({.channels = 16, .library = library}), {8, 8, 16});
    const auto input = normal_tensor<float>(3, {8, 8, 16}, 25);
    const auto gradient = normal_tensor<float>(3, harness.output_shape, 26);
    harness.forward(input);
    harness.backward(input, gradient);
    const auto expected = harness.gradients;
    harness.gradients[0].assign(harness.gradients[0].size(), 0);
    harness.layer().backward(harness.pass, input, harness.output, gradient, nullptr);
    EXPECT_EQ(harness.gradients, expected);
  }
}

TEST(Conv2d, BitsDependOnNoHistoryAndNoAddress) {
  const ConvolutionCase c{40, {26, 26, 32}, {.channels = 64}};
  const auto input = normal_tensor<float>(c.samples, c.input, 27);
  const auto other = normal_tensor<float>(33, c.input, 28);
  const auto gradient = normal_tensor<float>(c.samples, {24, 24, 64}, 29);
  LayerHarness<float> fresh(conv2d<float>(c.options), c.input), used(conv2d<float>(c.options), c.input);
  for (int round = 0; round < 10; ++round) {  // more numbers of samples than are kept
    used.forward(normal_tensor<float>(1 + round, c.input, 30));
  }
  used.forward(other);
  used.backward(other, normal_tensor<float>(33, {24, 24, 64}, 31));
  for (LayerHarness<float>* harness : {&fresh, &used}) {
    harness->forward(input);
    harness->backward(input, gradient);
  }
  EXPECT_TRUE(std::equal(fresh.output.host().begin(), fresh.output.host().end(), used.output.host().begin()));
  EXPECT_TRUE(std::equal(fresh.input_gradient.host().begin(), fresh.input_gradient.host().end(),
                         used.input_gradient.host().begin()));
  EXPECT_EQ(fresh.gradients, used.gradients);
}

}  // namespace
}  // namespace farandole::trainer
