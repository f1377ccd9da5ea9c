// SPDX-License-Identifier: Apache-2.0
// All results of a convolution, to compare algorithms.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "convolution.h"
#include "layer_harness.h"

namespace farandole::trainer {

template <class Scalar>
std::vector<Scalar> normal_values(std::int64_t count, std::uint64_t stream, double scale = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_normal(std::span(values), stream, scale);
  return {values.begin(), values.end()};
}

/// Values for all passes of a convolution.
template <class Scalar>
struct ConvolutionValues {
  explicit ConvolutionValues(const ConvolutionGeometry& g, std::int64_t samples)
      : input(normal_values<Scalar>(samples * g.input_elements(), 40)),
        weights(normal_values<Scalar>(g.patch_elements() * g.channels, 41, 0.1)),
        bias(normal_values<Scalar>(g.channels, 42)),
        output_gradient(normal_values<Scalar>(samples * g.output_positions() * g.channels, 43)) {}

  std::vector<Scalar> input, weights, bias, output_gradient;
};

template <class Scalar>
struct ConvolutionResults {
  std::vector<Scalar> output, input_gradient, weight_gradient, bias_gradient;
  bool operator==(const ConvolutionResults&) const = default;
};

/// Computes all results from `count` samples. What is written is filled with NaN before.
/// @param input_gradient  false: it stays NaN
template <class Scalar>
ConvolutionResults<Scalar> results_of(Convolution<Scalar>& convolution, const ConvolutionGeometry& g,
                                      const ConvolutionValues<Scalar>& values, std::int64_t first, std::int64_t count,
                                      bool input_gradient = true) {
  constexpr Scalar kNan = std::numeric_limits<Scalar>::quiet_NaN();
  const std::int64_t input_elements = g.input_elements(), output_elements = g.output_positions() * g.channels;
  ConvolutionResults<Scalar> results{std::vector<Scalar>(static_cast<std::size_t>(count * output_elements), kNan),
                                     std::vector<Scalar>(static_cast<std::size_t>(count * input_elements), kNan),
                                     std::vector<Scalar>(values.weights.size(), kNan),
                                     std::vector<Scalar>(values.bias.size(), kNan)};
  Workspace workspace;
  const Scalar* input = values.input.data() + first * input_elements;
  convolution.forward(workspace, count, input, values.weights.data(), values.bias.data(), results.output.data());
  convolution.backward(workspace, count, input, values.weights.data(),
                       values.output_gradient.data() + first * output_elements, results.weight_gradient.data(),
                       results.bias_gradient.data(), input_gradient ? results.input_gradient.data() : nullptr);
  return results;
}

inline double error_of(const std::vector<float>& values, const std::vector<double>& exact) {
  const std::vector<double> wide(values.begin(), values.end());
  return relative_error(std::span<const double>(wide), std::span<const double>(exact));
}

/// Checks that a convolution with a ReLU behind it has the bits of the convolution and of a ReLU in passes of their
/// own.
inline void expect_bits_of_two_passes(RectifiableConvolution<float>& convolution, const ConvolutionGeometry& g,
                                      std::int64_t samples) {
  ConvolutionValues<float> values(g, samples);
  const auto bits = [](const std::vector<float>& of) {
    std::vector<std::uint32_t> result;
    for (const float value : of) result.push_back(std::bit_cast<std::uint32_t>(value));
    return result;
  };
  for (const bool input_gradient : {true, false}) {
    ConvolutionResults<float> two = results_of(convolution, g, values, 0, samples), one = two;
    ConvolutionValues<float> masked = values;
    for (std::size_t k = 0; k < two.output.size(); ++k) {
      two.output[k] = 0 > two.output[k] ? 0 : two.output[k];
      if (!(two.output[k] > 0)) masked.output_gradient[k] = 0;
    }
    Workspace workspace;
    convolution.backward(workspace, samples, values.input.data(), values.weights.data(), masked.output_gradient.data(),
                         two.weight_gradient.data(), two.bias_gradient.data(),
                         input_gradient ? two.input_gradient.data() : nullptr);
    convolution.forward_rectified(workspace, samples, values.input.data(), values.weights.data(), values.bias.data(),
                                  one.output.data());
    convolution.backward_rectified(workspace, samples, values.input.data(), values.weights.data(), one.output.data(),
                                   values.output_gradient.data(), one.weight_gradient.data(), one.bias_gradient.data(),
                                   input_gradient ? one.input_gradient.data() : nullptr);
    EXPECT_EQ(bits(one.output), bits(two.output));
    EXPECT_EQ(bits(one.input_gradient), bits(two.input_gradient));
    EXPECT_EQ(bits(one.weight_gradient), bits(two.weight_gradient));
    EXPECT_EQ(bits(one.bias_gradient), bits(two.bias_gradient));
  }
  values.input[0] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> output(values.output_gradient.size());
  Workspace workspace;
  convolution.forward_rectified(workspace, samples, values.input.data(), values.weights.data(), values.bias.data(),
                                output.data());
  EXPECT_TRUE(std::any_of(output.begin(), output.end(), [](float value) { return std::isnan(value); }));
}

}  // namespace farandole::trainer
