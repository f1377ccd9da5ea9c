// SPDX-License-Identifier: Apache-2.0
// Runs one layer with memory of its own, and checks its gradients against central differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/random.h"

namespace farandole::trainer {

inline constexpr std::uint64_t kTestSeed = 20240229;

template <class Scalar>
void fill_normal(std::span<Scalar> values, std::uint64_t stream, double scale = 1) {
  const CounterRandom random(kTestSeed, stream);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Scalar>(scale * random.normal(i));
}

template <class Scalar>
Tensor<Scalar> normal_tensor(std::int64_t samples, const Shape& shape, std::uint64_t stream, double scale = 1) {
  Tensor<Scalar> tensor(samples, shape);
  fill_normal(tensor.host(), stream, scale);
  return tensor;
}

/// The tensor's values in another type.
template <class To, class From>
Tensor<To> converted(const Tensor<From>& tensor) {
  Tensor<To> result(tensor.samples(), tensor.shape());
  std::transform(tensor.host().begin(), tensor.host().end(), result.host().begin(),
                 [](From value) { return static_cast<To>(value); });
  return result;
}

/// A layer with parameters drawn from a normal distribution, and everything it writes filled with NaN before.
template <class Scalar>
class LayerHarness {
 public:
  LayerHarness(std::unique_ptr<Layer<Scalar>> layer, const Shape& input) : layer_(std::move(layer)) {
    output_shape = layer_->prepare(input);
    LayerMemory<Scalar> memory;
    for (const ParameterSpec& spec : layer_->parameters()) {
      parameters.emplace_back(static_cast<std::size_t>(elements(spec.shape)));
      fill_normal(std::span(parameters.back()), 1000 + parameters.size(), 0.5);
    }
    for (const StatisticSpec& spec : layer_->statistics()) {
      moving.emplace_back(static_cast<std::size_t>(spec.count), static_cast<Scalar>(spec.initial));
    }
    gradients = parameters;
    statistics = moving;
    for (auto& values : parameters) memory.parameters.emplace_back(values);
    for (auto& values : gradients) memory.gradients.emplace_back(values);
    for (auto& values : statistics) memory.batch_statistics.emplace_back(values);
    for (auto& values : moving) memory.moving_statistics.emplace_back(values);
    layer_->bind(memory);
  }

  const Tensor<Scalar>& forward(const Tensor<Scalar>& input) {
    output.resize(input.samples(), output_shape);
    spoil(output.host());
    layer_->forward(pass, input, output);
    return output;
  }
  const Tensor<Scalar>& backward(const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient) {
    input_gradient.resize(input.samples(), input.shape());
    spoil(input_gradient.host());
    for (auto& values : gradients) spoil(std::span(values));
    layer_->backward(pass, input, output, output_gradient, &input_gradient);
    return input_gradient;
  }
  Layer<Scalar>& layer() { return *layer_; }

  Pass pass{.training = true};
  Shape output_shape;
  std::vector<std::vector<Scalar>> parameters, gradients, statistics, moving;
  Tensor<Scalar> output, input_gradient;

 private:
  static void spoil(std::span<Scalar> values) {
    std::fill(values.begin(), values.end(), std::numeric_limits<Scalar>::quiet_NaN());
  }
  std::unique_ptr<Layer<Scalar>> layer_;
};

/// Compares the gradients of sum(coefficients * output), by inputs and parameters, with central differences.
/// @param by_inputs  false: by parameters only
inline void check_gradients(LayerHarness<double>& harness, Tensor<double> input, double tolerance = 1e-6,
                            bool by_inputs = true) {
  constexpr double kStep = 1e-5;
  const Tensor<double> coefficients = normal_tensor<double>(input.samples(), harness.output_shape, 7);
  const auto objective = [&] {
    const Tensor<double>& output = harness.forward(input);
    double sum = 0;
    for (std::int64_t i = 0; i < output.size(); ++i) sum += coefficients.data()[i] * output.data()[i];
    return sum;
  };
  objective();
  const Tensor<double> by_input = converted<double>(harness.backward(input, coefficients));
  const std::vector<std::vector<double>> by_parameter = harness.gradients;

  const auto check = [&](double& variable, double gradient, const std::string& what) {
    const double value = variable;
    variable = value + kStep;
    const double above = objective();
    variable = value - kStep;
    const double below = objective();
    variable = value;
    const double expected = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient, expected, tolerance * std::max(1.0, std::abs(expected)))
        << harness.layer().name() << ", " << what << ", seed " << kTestSeed;
  };
  for (std::int64_t i = 0; i < input.size() && by_inputs; ++i) {
    check(input.data()[i], by_input.data()[i], "input " + std::to_string(i));
  }
  for (std::size_t p = 0; p < harness.parameters.size(); ++p) {
    for (std::size_t i = 0; i < harness.parameters[p].size(); ++i) {
      check(harness.parameters[p][i], by_parameter[p][i],
            "parameter " + std::to_string(p) + "[" + std::to_string(i) + "]");
    }
  }
}

/// Samples [first, first + count) of a batch.
template <class Scalar>
Tensor<Scalar> samples_of(const Tensor<Scalar>& batch, std::int64_t first, std::int64_t count) {
  Tensor<Scalar> part(count, batch.shape());
  std::copy_n(batch.data() + first * batch.sample_elements(), part.size(), part.data());
  return part;
}

/// Checks that a sample's output and input gradient have the same bits whether the sample comes in the whole batch or
/// in a part of it. Parts of 1, 2, 3, … samples begin at different alignments.
template <class Scalar>
void check_independence_of_split(LayerHarness<Scalar>& harness, const Tensor<Scalar>& input) {
  const std::int64_t samples = input.samples();
  const Tensor<Scalar> gradient = normal_tensor<Scalar>(samples, harness.output_shape, 8);
  const Tensor<Scalar> output = converted<Scalar>(harness.forward(input));
  const Tensor<Scalar> by_input = converted<Scalar>(harness.backward(input, gradient));
  const auto same = [](const Tensor<Scalar>& part, const Tensor<Scalar>& whole, std::int64_t first) {
    return std::equal(part.host().begin(), part.host().end(), whole.data() + first * whole.sample_elements());
  };
  for (std::int64_t first = 0, count = 1; first < samples; first += count, ++count) {
    count = std::min(count, samples - first);
    const Tensor<Scalar> part = samples_of(input, first, count);
    harness.pass.first_sample = first;
    EXPECT_TRUE(same(harness.forward(part), output, first)) << harness.layer().name() << ", sample " << first;
    EXPECT_TRUE(same(harness.backward(part, samples_of(gradient, first, count)), by_input, first))
        << harness.layer().name() << ", sample " << first;
  }
  harness.pass.first_sample = 0;
}

/// Checks that a call throws InvalidArgument, whose message contains all `parts`.
template <class Call>
void expect_invalid(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks " << part;
    }
  }
}

/// The largest |left - right|, relative to the root mean square of `right`.
template <class Left, class Right>
double relative_error(std::span<const Left> left, std::span<const Right> right) {
  double largest = 0, squares = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double difference = std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
    if (!(difference <= largest)) largest = difference;  // NaN is kept
    squares += static_cast<double>(right[i]) * static_cast<double>(right[i]);
  }
  return left.size() != right.size() ? INFINITY : largest / std::sqrt(squares / static_cast<double>(right.size()));
}

}  // namespace farandole::trainer
