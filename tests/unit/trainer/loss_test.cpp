// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "farandole/core/error.h"
#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

TEST(SoftmaxCrossEntropy, GradientMatchesCentralDifferences) {
  Tensor<double> logits = normal_tensor<double>(5, {7}, 70, 3), gradient;
  const std::vector<std::int32_t> labels{0, 6, 3, 3, 1};
  constexpr double kScale = 0.125, kStep = 1e-5;
  const BatchResult result = softmax_cross_entropy<double>(logits, labels, kScale, &gradient);
  EXPECT_EQ(result.samples, 5);
  for (std::int64_t i = 0; i < logits.size(); ++i) {
    const double value = logits.data()[i];
    logits.data()[i] = value + kStep;
    const double above = softmax_cross_entropy<double>(logits, labels, 1, nullptr).loss_sum;
    logits.data()[i] = value - kStep;
    const double below = softmax_cross_entropy<double>(logits, labels, 1, nullptr).loss_sum;
    logits.data()[i] = value;
    EXPECT_NEAR(gradient.data()[i], kScale * (above - below) / (2 * kStep), 1e-9) << i << ", seed " << kTestSeed;
  }
}

TEST(SoftmaxCrossEntropy, KnownValues) {
  Tensor<float> logits(3, {4});
  const float values[] = {0, 0, 0, 0, 1000, 0, 0, -1000, 1, 2, 3, 2};
  std::copy(std::begin(values), std::end(values), logits.data());
  const std::vector<std::int32_t> labels{2, 0, 1};
  const BatchResult result = softmax_cross_entropy<float>(logits, labels, 1, nullptr);
  const double third = std::log(std::exp(-1) + 1 + std::exp(1) + 1);
  EXPECT_NEAR(result.loss_sum, std::log(4) + 0 + third, 1e-12);
  EXPECT_EQ(result.correct, 1);  // ties count for the first class only
}

TEST(SoftmaxCrossEntropy, NotANumberShows) {
  Tensor<float> logits(1, {3});
  std::fill(logits.values().begin(), logits.values().end(), 0.0F);
  logits.data()[1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> labels{0};
  EXPECT_TRUE(std::isnan(softmax_cross_entropy<float>(logits, labels, 1, nullptr).loss_sum));
}

TEST(SoftmaxCrossEntropy, NoSamples) {
  Tensor<float> gradient;
  const BatchResult result = softmax_cross_entropy<float>(Tensor<float>(0, {3}), {}, 1, &gradient);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.samples, 0);
  EXPECT_EQ(gradient.size(), 0);
}

TEST(SoftmaxCrossEntropy, BadLabelsAreRefused) {
  const Tensor<float> logits = normal_tensor<float>(2, {3}, 71);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{0, 3}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{-1, 0}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(softmax_cross_entropy<float>(logits, std::vector<std::int32_t>{0}, 1, nullptr), InvalidArgument);
  EXPECT_THROW(
      softmax_cross_entropy<float>(normal_tensor<float>(2, {3, 3, 1}, 71), std::vector<std::int32_t>{0, 0}, 1, nullptr),
      InvalidArgument);
}

}  // namespace
}  // namespace farandole::trainer
