// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "farandole/core/error.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;

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

TEST(LearningRate, CosineAndPolynomialEndAtTheMinimum) {
  for (const auto schedule : {LearningRateSchedule::kCosine, LearningRateSchedule::kPolynomial}) {
    const LearningRateOptions options{.base = 2, .schedule = schedule, .warmup_steps = 20, .minimum = 0.5};
    EXPECT_DOUBLE_EQ(rate(options, 9), 1);
    EXPECT_DOUBLE_EQ(rate(options, 20), 2);
    EXPECT_DOUBLE_EQ(rate(options, 60), 1.25) << "half way";
    EXPECT_GT(rate(options, 99), 0.5);
    EXPECT_DOUBLE_EQ(rate(options, 100), 0.5);
    EXPECT_DOUBLE_EQ(rate(options, 1000), 0.5);
  }
}

TEST(LearningRate, PolynomialAsPyTorch) {
  for (const double power : {0.5, 1.0, 3.0}) {
    const LearningRateOptions options{
        .base = 0.3, .schedule = LearningRateSchedule::kPolynomial, .warmup_steps = 10, .power = power};
    // PolynomialLR changes the rate from step to step by ((1 - t/T) / (1 - (t-1)/T))^power.
    double expected = 0.3;
    for (int t = 0; t < 90; ++t) {
      if (t > 0) expected *= std::pow((1 - t / 90.0) / (1 - (t - 1) / 90.0), power);
      ASSERT_NEAR(rate(options, 10 + t), expected, 1e-13) << "power " << power << ", step " << t;
    }
  }
}

/// PyTorch's OneCycleLR._get_lr with anneal_strategy "cos" and two phases.
double torch_one_cycle(double max_lr, double total_steps, const OneCycleOptions& options, double step) {
  const double initial = max_lr / options.div_factor, least = initial / options.final_div_factor;
  struct Phase {
    double end_step, start, end;
  };
  const Phase phases[]{{options.pct_start * total_steps - 1, initial, max_lr}, {total_steps - 1, max_lr, least}};
  double start_step = 0;
  for (const Phase& phase : phases) {
    if (step <= phase.end_step || &phase == &phases[1]) {
      const double cos_out = std::cos(std::numbers::pi * (step - start_step) / (phase.end_step - start_step)) + 1;
      return phase.end + (phase.start - phase.end) / 2 * cos_out;
    }
    start_step = phase.end_step;
  }
  return std::nan("");
}

TEST(LearningRate, OneCycleAsPyTorch) {
  for (const OneCycleOptions& cycle : {OneCycleOptions{}, OneCycleOptions{.pct_start = 0},
                                       OneCycleOptions{.pct_start = 0.85, .div_factor = 4, .final_div_factor = 10}}) {
    for (const std::int64_t warmup : {0, 30}) {
      const LearningRateOptions options{
          .base = 0.8, .schedule = LearningRateSchedule::kOneCycle, .warmup_steps = warmup, .one_cycle = cycle};
      const auto all = static_cast<double>(kTotal - warmup);
      for (std::int64_t step = warmup; step < kTotal; ++step) {
        ASSERT_NEAR(rate(options, step), torch_one_cycle(0.8, all, cycle, static_cast<double>(step - warmup)), 1e-15)
            << "step " << step << ", pct_start " << cycle.pct_start << ", warm-up " << warmup;
      }
      EXPECT_DOUBLE_EQ(rate(options, 1000), 0.8 / cycle.div_factor / cycle.final_div_factor);
    }
  }
  const LearningRateOptions options{.base = 1, .schedule = LearningRateSchedule::kOneCycle, .warmup_steps = 10};
  EXPECT_NEAR(rate(options, 4), 0.02, 1e-15) << "the warm-up rises to the first rate of the cycle";
  EXPECT_NEAR(rate(options, 10), 0.04, 1e-15);
  EXPECT_DOUBLE_EQ(rate(options, 10 + 26), 1);
  EXPECT_DOUBLE_EQ(rate(options, 99), 4e-6);
}

TEST(LearningRate, OneCycleOfFewStepsIsANumber) {
  for (std::int64_t total = 1; total < 9; ++total) {
    for (const double start : {0.0, 0.2, 0.25, 0.5}) {
      const LearningRateOptions options{
          .base = 1, .schedule = LearningRateSchedule::kOneCycle, .one_cycle = {.pct_start = start}};
      for (std::int64_t step = 0; step < total; ++step) {
        const double found = learning_rate(options, 1, step, 1, total);
        EXPECT_TRUE(found > 0 && found <= 1) << found << " in step " << step << " of " << total;
      }
    }
  }
}

/// PyTorch's ReduceLROnPlateau with mode "min" and threshold_mode "rel".
class TorchPlateau {
 public:
  TorchPlateau(double rate, const PlateauOptions& options, double least)
      : rate_(rate), options_(options), least_(least) {}
  double step(double loss) {
    if (loss < best_ * (1 - options_.threshold)) {
      best_ = loss;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (bad_ > options_.patience) {
      rate_ = std::max(rate_ * options_.factor, least_);
      bad_ = 0;
    }
    return rate_;
  }

 private:
  double rate_, best_ = std::numeric_limits<double>::infinity();
  const PlateauOptions options_;
  const double least_;
  std::int64_t bad_ = 0;
};

TEST(LearningRate, PlateauAsPyTorch) {
  const std::vector<double> losses{5,   4, 4, 3.999, 3.99, 4,   4, 3.9, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.5, std::nan(""),
                                   0.5, 6, 6, 6,     0.1,  0.2, 1, 1,   1, 1, 1, 1, 1, 1, 1, 1,   1,   1};
  for (const PlateauOptions& plateau : {PlateauOptions{.factor = 0.5, .patience = 2}, PlateauOptions{.patience = 0},
                                        PlateauOptions{.factor = 0.7, .patience = 1, .threshold = 0.2}}) {
    const LearningRateOptions options{
        .base = 0.4, .schedule = LearningRateSchedule::kPlateau, .minimum = 0.001, .plateau = plateau};
    TorchPlateau reference(0.4, plateau, 0.001);
    PlateauState state;
    EXPECT_DOUBLE_EQ(learning_rate(options, 1, 0, kPerEpoch, kTotal, state), 0.4);
    for (const double loss : losses) {
      observe_loss(plateau, loss, state);
      ASSERT_NEAR(learning_rate(options, 1, 50, kPerEpoch, kTotal, state), reference.step(loss), 1e-16);
    }
    EXPECT_LT(state.factor, 1);
  }
}

TEST(LearningRate, OwnScheduleGetsTheStepsAndWarmsUp) {
  LearningRateOptions options{.schedule = LearningRateSchedule::kOwn, .warmup_steps = 4};
  options.own = [](std::int64_t step, std::int64_t per_epoch, std::int64_t total) {
    return 1000.0 * static_cast<double>(step) + 10 * static_cast<double>(per_epoch) + static_cast<double>(total);
  };
  EXPECT_DOUBLE_EQ(rate(options, 7), 7200);
  EXPECT_DOUBLE_EQ(rate(options, 1), 1200 * 0.5);
  options.scale_by_replicas = true;
  EXPECT_DOUBLE_EQ(rate(options, 7, 3), 21600);
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
       {LearningRateSchedule::kConstant, LearningRateSchedule::kStep, LearningRateSchedule::kCosine,
        LearningRateSchedule::kPolynomial, LearningRateSchedule::kOneCycle, LearningRateSchedule::kPlateau}) {
    EXPECT_EQ(parse_learning_rate_schedule(name(schedule)), schedule);
  }
  EXPECT_THROW(parse_learning_rate_schedule("linear"), InvalidArgument);
  EXPECT_THROW(parse_learning_rate_schedule("own"), InvalidArgument);
}

TEST(LearningRate, OptionsOutOfRangeAreRefused) {
  EXPECT_NO_THROW(check(LearningRateOptions{}));
  EXPECT_THROW(check(LearningRateOptions{.base = 0}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.base = std::nan("")}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.warmup_steps = -1}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.step_factor = 1.5}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.step_epochs = 0}), InvalidArgument);
  EXPECT_THROW(check(LearningRateOptions{.power = 0}), InvalidArgument);
  for (const OneCycleOptions& cycle :
       {OneCycleOptions{.pct_start = 1}, OneCycleOptions{.pct_start = -0.1}, OneCycleOptions{.div_factor = 0.5},
        OneCycleOptions{.final_div_factor = std::nan("")}}) {
    EXPECT_THROW(check(LearningRateOptions{.one_cycle = cycle}), InvalidArgument);
  }
  for (const PlateauOptions& plateau : {PlateauOptions{.factor = 1}, PlateauOptions{.factor = 0},
                                        PlateauOptions{.patience = -1}, PlateauOptions{.threshold = 1}}) {
    EXPECT_THROW(check(LearningRateOptions{.plateau = plateau}), InvalidArgument);
  }
}

TEST(LearningRate, OptionsThatDoNotFitTheScheduleSayWhatDoes) {
  const auto refusal = [](const LearningRateOptions& options) {
    return message_of<InvalidArgument>([&] { check(options); });
  };
  EXPECT_TRUE(contains(refusal({.schedule = LearningRateSchedule::kStep, .minimum = 0.01}),
                       "no effect with the schedule step; it needs cosine, polynomial or plateau"));
  EXPECT_TRUE(contains(refusal({.base = 0.1, .schedule = LearningRateSchedule::kCosine, .minimum = 0.2}),
                       "at most the learning rate, 0.1"));
  EXPECT_NO_THROW(check(LearningRateOptions{.schedule = LearningRateSchedule::kPlateau, .minimum = 0.05}));
  EXPECT_TRUE(contains(refusal({.schedule = LearningRateSchedule::kOwn}), "LearningRateOptions::own is empty"));
  LearningRateOptions options;
  options.own = [](std::int64_t, std::int64_t, std::int64_t) { return 1.0; };
  EXPECT_TRUE(contains(refusal(options), "choose LearningRateSchedule::kOwn"));
}

}  // namespace
}  // namespace farandole::trainer
