// SPDX-License-Identifier: Apache-2.0
// Activations: values against the standard library's functions, gradients against central differences.
#include <functional>
#include <limits>

#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
struct ActivationCase {
  std::unique_ptr<Layer<Scalar>> layer;
  std::function<double(double)> formula;
};

template <class Scalar>
std::vector<ActivationCase<Scalar>> activation_cases() {
  std::vector<ActivationCase<Scalar>> all;
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  all.push_back({relu<Scalar>(), [](double x) { return std::max(x, 0.0); }});
  all.push_back({leaky_relu<Scalar>(0.125), [](double x) { return x > 0 ? x : x / 8; }});
  all.push_back({gelu<Scalar>(), [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }});
  all.push_back({silu<Scalar>(), [logistic](double x) { return x * logistic(x); }});
  all.push_back({sigmoid<Scalar>(), logistic});
  all.push_back({hyperbolic_tangent<Scalar>(), [](double x) { return std::tanh(x); }});
  return all;
}

/// Values from -20 to 20; 131 elements per sample, so that samples begin and end inside of Eigen's blocks.
template <class Scalar>
Tensor<Scalar> wide_tensor(std::int64_t samples) {
  Tensor<Scalar> input = normal_tensor<Scalar>(samples, {131}, 20, 4);
  const Scalar fixed[] = {0, 1, -1, 20, -20, Scalar(1e-4), Scalar(-1e-4)};
  std::copy(std::begin(fixed), std::end(fixed), input.data());
  return input;
}

template <class Scalar>
void check_activations(double tolerance) {
  for (ActivationCase<Scalar>& c : activation_cases<Scalar>()) {
    LayerHarness<Scalar> harness(std::move(c.layer), {131});
    const Tensor<Scalar> input = wide_tensor<Scalar>(3);
    const Tensor<Scalar>& output = harness.forward(input);
    EXPECT_EQ(harness.output_shape, Shape({131}));
    for (std::int64_t i = 0; i < input.size(); ++i) {
      const double expected = c.formula(static_cast<double>(input.data()[i]));
      ASSERT_NEAR(output.data()[i], expected, tolerance * std::max(1.0, std::abs(expected)))
          << harness.layer().name() << " of " << input.data()[i];
    }
  }
}
TEST(Activations, ValuesEqualTheFormulas) {
  check_activations<float>(1e-6);
  check_activations<double>(1e-14);
}

TEST(Activations, GradientsMatchCentralDifferences) {
  for (ActivationCase<double>& c : activation_cases<double>()) {
    LayerHarness<double> harness(std::move(c.layer), {5, 7, 2});
    Tensor<double> input = normal_tensor<double>(3, {5, 7, 2}, 21, 2);
    for (double& value : input.host()) value += value < 0 ? -0.01 : 0.01;  // away from kinks
    check_gradients(harness, std::move(input));
  }
}

TEST(Activations, FloatGradientsAgreeWithDouble) {
  std::vector<ActivationCase<float>> singles = activation_cases<float>();
  std::vector<ActivationCase<double>> doubles = activation_cases<double>();
  for (std::size_t k = 0; k < singles.size(); ++k) {
    LayerHarness<float> single(std::move(singles[k].layer), {131});
    LayerHarness<double> twice(std::move(doubles[k].layer), {131});
    const auto input = wide_tensor<float>(2), gradient = normal_tensor<float>(2, {131}, 22);
    single.forward(input);
    twice.forward(converted<double>(input));
    const auto& dx = single.backward(input, gradient);
    const auto& dx2 = twice.backward(converted<double>(input), converted<double>(gradient));
    EXPECT_LT(relative_error(dx.host(), dx2.host()), 2e-6) << single.layer().name();
  }
}

template <class Scalar>
void check_activations_split() {
  for (ActivationCase<Scalar>& c : activation_cases<Scalar>()) {
    LayerHarness<Scalar> harness(std::move(c.layer), {131});
    check_independence_of_split(harness, wide_tensor<Scalar>(11));
  }
}
TEST(Activations, BitsDoNotDependOnThePlaceInTheBatch) {
  check_activations_split<float>();
  check_activations_split<double>();
}

template <class Scalar>
void check_activations_extremes() {
  constexpr Scalar kInfinity = std::numeric_limits<Scalar>::infinity();
  for (ActivationCase<Scalar>& c : activation_cases<Scalar>()) {
    LayerHarness<Scalar> harness(std::move(c.layer), {131});
    Tensor<Scalar> input = wide_tensor<Scalar>(1), gradient(1, {131});
    std::fill(gradient.host().begin(), gradient.host().end(), Scalar{1});
    input.data()[0] = input.data()[130] = std::numeric_limits<Scalar>::quiet_NaN();
    input.data()[1] = 1000, input.data()[2] = -1000;
    const Tensor<Scalar>& output = harness.forward(input);
    const Tensor<Scalar>& by_input = harness.backward(input, gradient);
    for (const std::int64_t place : {0, 130}) {
      EXPECT_TRUE(std::isnan(output.data()[place])) << harness.layer().name();
    }
    for (const std::int64_t place : {1, 2}) {
      EXPECT_NEAR(output.data()[place], c.formula(static_cast<double>(input.data()[place])), 1e-30)
          << harness.layer().name();
      EXPECT_LT(std::abs(by_input.data()[place]), kInfinity) << harness.layer().name();
    }
  }
}
TEST(Activations, LargeValuesStayFiniteAndNanIsKept) {
  check_activations_extremes<float>();
  check_activations_extremes<double>();
}

TEST(Activations, InfiniteSlopeIsRefused) {
  expect_invalid([] { leaky_relu<float>(INFINITY); }, {"leaky_relu", "finite", "inf"});
}

}  // namespace
}  // namespace farandole::trainer
