// SPDX-License-Identifier: Apache-2.0
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

std::vector<float> dropped_ones(const Pass& pass, std::int64_t samples, std::int64_t features, double rate) {
  LayerHarness<float> harness(dropout<float>(rate), {features});
  harness.pass = pass;
  Tensor<float> input(samples, {features});
  std::fill(input.host().begin(), input.host().end(), 1.0F);
  const auto values = harness.forward(input).host();
  return {values.begin(), values.end()};
}

TEST(Dropout, DropsTheRateAndScalesTheRest) {
  const auto values = dropped_ones({.training = true, .seed = 3}, 100, 1000, 0.25);
  const auto dropped = std::count(values.begin(), values.end(), 0.0F);
  EXPECT_NEAR(static_cast<double>(dropped), 25000, 5 * std::sqrt(100000 * 0.25 * 0.75));  // five deviations
  for (const float value : values) EXPECT_TRUE(value == 0 || value == static_cast<float>(1 / 0.75)) << value;
}

TEST(Dropout, DependsOnThePlaceInTheGlobalBatchOnly) {
  constexpr std::int64_t kFeatures = 7;  // samples do not start at multiples of four numbers
  const Pass pass{.training = true, .seed = 5, .training_step = 11, .layer = 3};
  const auto whole = dropped_ones(pass, 12, kFeatures, 0.5);
  for (const std::int64_t first : {0, 1, 5, 8}) {
    Pass part = pass;
    part.first_sample = first;
    const auto values = dropped_ones(part, 4, kFeatures, 0.5);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), whole.begin() + first * kFeatures)) << first;
  }
}

TEST(Dropout, ChangesWithSeedStepAndLayer) {
  const Pass pass{.training = true, .seed = 5, .training_step = 11, .layer = 3};
  const auto values = dropped_ones(pass, 4, 64, 0.5);
  EXPECT_EQ(values, dropped_ones(pass, 4, 64, 0.5));
  EXPECT_NE(values, dropped_ones({.training = true, .seed = 6, .training_step = 11, .layer = 3}, 4, 64, 0.5));
  EXPECT_NE(values, dropped_ones({.training = true, .seed = 5, .training_step = 12, .layer = 3}, 4, 64, 0.5));
  EXPECT_NE(values, dropped_ones({.training = true, .seed = 5, .training_step = 11, .layer = 4}, 4, 64, 0.5));
}

TEST(Dropout, IsTheIdentityInEvaluationAndForRateZero) {
  const std::vector<float> ones(40, 1.0F);
  EXPECT_EQ(dropped_ones({.seed = 1}, 4, 10, 0.5), ones);
  EXPECT_EQ(dropped_ones({.training = true, .seed = 1}, 4, 10, 0), ones);
}

TEST(Dropout, FloatAndDoubleDropTheSame) {
  LayerHarness<double> harness(dropout<double>(0.3), {50});
  harness.pass.seed = 9;
  const Tensor<double>& output = harness.forward(normal_tensor<double>(3, {50}, 60));
  const auto single = dropped_ones({.training = true, .seed = 9}, 3, 50, 0.3);
  for (std::size_t i = 0; i < single.size(); ++i) EXPECT_EQ(output.data()[i] == 0, single[i] == 0) << i;
}

}  // namespace
}  // namespace farandole::trainer
