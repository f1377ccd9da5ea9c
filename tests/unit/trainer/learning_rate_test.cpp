// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kPerEpoch = 10, kTotal = 100;

double rate(const LearningRateOptions& options, std::int64_t step, int replicas = 1) {
  return learning_rate(options, replicas, step, kPerEpoch, kTotal);
}

TEST(LearningRate, Constant) {
  const LearningRateOptions options{.base = 0.3};
  EXPECT_DOUBLE_EQ(rate(options, 0), 0.3);
  EXPECT_DOUBLE_EQ(rate(options, 99), 0.3);
}

TEST(LearningRate, WarmsUpLinearlyToTheBase) {
  const LearningRateOptions options{.base = 0.4, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(rate(options, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate(options, 1), 0.2);
  EXPECT_DOUBLE_EQ(rate(options, 3), 0.4);
  EXPECT_DOUBLE_EQ(rate(options, 4), 0.4);
}

TEST(LearningRate, DropsEveryFewEpochs) {
  const LearningRateOptions options{
      .base = 1, .schedule = LearningRateSchedule::kStep, .step_factor = 0.5, .step_epochs = 3};
  EXPECT_DOUBLE_EQ(rate(options, 29), 1);
  EXPECT_DOUBLE_EQ(rate(options, 30), 0.5);
  EXPECT_DOUBLE_EQ(rate(options, 59), 0.5);
  EXPECT_DOUBLE_EQ(rate(options, 60), 0.25);
}

TEST(LearningRate, CosineFallsFromTheEndOfWarmUpToZero) {
  const LearningRateOptions options{.base = 2, .schedule = LearningRateSchedule::kCosine, .warmup_steps = 20};
  EXPECT_DOUBLE_EQ(rate(options, 9), 1);
  EXPECT_DOUBLE_EQ(rate(options, 20), 2);
  EXPECT_DOUBLE_EQ(rate(options, 60), 1);
  EXPECT_DOUBLE_EQ(rate(options, 80), 1 + std::cos(std::numbers::pi * 0.75));
  EXPECT_DOUBLE_EQ(rate(options, 100), 0);
  EXPECT_DOUBLE_EQ(rate(options, 1000), 0);
}

TEST(LearningRate, ScalesWithReplicasWhenAsked) {
  LearningRateOptions options{.base = 0.1, .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(rate(options, 5, 4), 0.1);
  options.scale_by_replicas = true;
  EXPECT_DOUBLE_EQ(rate(options, 0, 4), 0.2);
  EXPECT_DOUBLE_EQ(rate(options, 5, 4), 0.4);
}

TEST(LearningRate, NamesAreReadBack) {
  for (const auto schedule :
       {LearningRateSchedule::kConstant, LearningRateSchedule::kStep, LearningRateSchedule::kCosine}) {
    EXPECT_EQ(parse_learning_rate_schedule(name(schedule)), schedule);
  }
  EXPECT_THROW(parse_learning_rate_schedule("linear"), InvalidArgument);
}

TEST(LearningRate, OptionsOutOfRangeAreRefused) {
  EXPECT_NO_THROW(check(LearningRateOptions{}));
  EXPECT_THROW(check(LearningRateOptions{.base = 0}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.base = std::nan("")}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.warmup_steps = -1}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.step_factor = 1.5}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.step_epochs = 0}), InvalidArgument);
}

}  // namespace
}  // namespace farandole::trainer
