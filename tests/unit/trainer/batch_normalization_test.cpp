// SPDX-License-Identifier: Apache-2.0
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

const Shape kImage{3, 2, 4};

template <class Scalar>
void check_normalised(double tolerance) {
  LayerHarness<Scalar> harness(batch_normalization<Scalar>({.epsilon = 1e-9}), kImage);
  Tensor<Scalar> input = normal_tensor<Scalar>(50, kImage, 40);
  for (std::int64_t i = 0; i < input.size(); ++i) {
    input.data()[i] = static_cast<Scalar>(5 * (i % 4)) + static_cast<Scalar>(1 + i % 4) * input.data()[i];
  }
  const Tensor<Scalar>& output = harness.forward(input);
  const std::int64_t rows = input.size() / 4;
  for (std::int64_t c = 0; c < 4; ++c) {
    double sum = 0, squares = 0, mean = 0, moment = 0;
    const auto k = static_cast<std::size_t>(c);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double y =
          (static_cast<double>(output.data()[row * 4 + c]) - harness.parameters[1][k]) / harness.parameters[0][k];
      sum += y;
      squares += y * y;
      mean += static_cast<double>(input.data()[row * 4 + c]) / static_cast<double>(rows);
    }
    for (std::int64_t row = 0; row < rows; ++row) moment += std::pow(input.data()[row * 4 + c] - mean, 2);
    EXPECT_NEAR(sum / static_cast<double>(rows), 0, tolerance);
    EXPECT_NEAR(squares / static_cast<double>(rows), 1, tolerance);
    EXPECT_NEAR(harness.statistics[0][k], mean, tolerance * 20);
    EXPECT_NEAR(harness.statistics[1][k], moment / static_cast<double>(rows - 1), tolerance * 20);  // unbiased
  }
}
TEST(BatchNormalization, NormalisesEachChannelAndReportsStatistics) {
  check_normalised<float>(1e-5);
  check_normalised<double>(1e-8);
}

TEST(BatchNormalization, EvaluationUsesMovingStatistics) {
  LayerHarness<double> harness(batch_normalization<double>({.epsilon = 1e-5}), {2});
  harness.pass.training = false;
  harness.parameters = {{2, 3}, {0.5, -0.5}};
  harness.moving = {{1, -1}, {4, 0.25}};
  const auto statistics = harness.statistics;
  Tensor<double> input(1, {2});
  input.data()[0] = 3, input.data()[1] = -2;
  const Tensor<double>& output = harness.forward(input);
  EXPECT_NEAR(output.data()[0], 2 * (3 - 1) / std::sqrt(4 + 1e-5) + 0.5, 1e-14);
  EXPECT_NEAR(output.data()[1], 3 * (-2 + 1) / std::sqrt(0.25 + 1e-5) - 0.5, 1e-14);
  EXPECT_EQ(harness.statistics, statistics) << "evaluation must not write batch statistics";
}

TEST(BatchNormalization, EmptyBatchGivesZeroStatistics) {
  LayerHarness<double> harness(batch_normalization<double>(), kImage);
  harness.forward(Tensor<double>(0, kImage));
  EXPECT_EQ(harness.statistics, (std::vector<std::vector<double>>(2, std::vector<double>(4, 0.0))));
}

TEST(BatchNormalization, OneRowHasNoVariance) {
  LayerHarness<double> harness(batch_normalization<double>(), {3});
  const auto input = normal_tensor<double>(1, {3}, 41);
  const Tensor<double>& output = harness.forward(input);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_DOUBLE_EQ(output.data()[c], harness.parameters[1][c]);
    EXPECT_EQ(harness.statistics[1][c], 0);
  }
}

TEST(BatchNormalization, ConstantChannelStaysFinite) {
  LayerHarness<float> harness(batch_normalization<float>(), {2});
  Tensor<float> input(64, {2});
  std::fill(input.host().begin(), input.host().end(), 1234.567F);
  for (const float value : harness.forward(input).host()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_GE(harness.statistics[1][0], 0);
}

TEST(BatchNormalization, SynchronizedEqualsLocalOnASingleRank) {
  LayerHarness<double> local(batch_normalization<double>(), kImage);
  LayerHarness<double> synchronized(batch_normalization<double>({.synchronized = true}), kImage);
  const auto input = normal_tensor<double>(6, kImage, 42), gradient = normal_tensor<double>(6, kImage, 43);
  for (auto* harness : {&local, &synchronized}) {
    harness->forward(input);
    harness->backward(input, gradient);
  }
  EXPECT_EQ(relative_error(std::as_const(local.output).host(), std::as_const(synchronized.output).host()), 0);
  EXPECT_EQ(local.gradients, synchronized.gradients);
  EXPECT_EQ(local.statistics, synchronized.statistics);
}

}  // namespace
}  // namespace farandole::trainer
