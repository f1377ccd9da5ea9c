// SPDX-License-Identifier: Apache-2.0
// Optimizers whose master values have a finer type than the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "farandole/trainer/optimizer.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

constexpr std::size_t kMasters = 6;

std::vector<NamedSpan> small_layout() {
  return {{"weight", {4}, 0, 4, true}, {"bias", {2}, 4, 2, false}};
}

template <class Scalar>
std::vector<Scalar> start_values() {
  return {0.5F, -1.25F, 3.0F, -0.0F, 0.1F, 1e-3F};
}

/// Gradients that are exact in float.
template <class Scalar>
std::vector<Scalar> exact_gradients(std::int64_t step) {
  std::vector<Scalar> gradients;
  for (std::size_t i = 0; i < kMasters; ++i) {
    gradients.push_back(static_cast<float>(std::sin(1.7 * static_cast<double>(step) + 0.9 * static_cast<double>(i))));
  }
  return gradients;
}

template <class Scalar>
std::vector<Scalar> train_with(const OptimizerOptions& options, std::int64_t steps, double rate = 0.01,
                               double clip = 0) {
  Optimizer<Scalar> optimizer(options, small_layout(), kMasters);
  std::vector<Scalar> values = start_values<Scalar>();
  const Execution execution(optimizer.precision());
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::vector<Scalar> gradients = exact_gradients<Scalar>(step);
    optimizer.update(execution, values, gradients, {.learning_rate = rate, .training_step = step, .clip_norm = clip});
  }
  return values;
}

TEST(MasterValues, AreThoseOfAModelOfTheirType) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    OptimizerOptions options{.kind = kind, .weight_decay = 0.1};
    options.groups = {{.pattern = "bias", .rate_factor = 2}};
    const std::vector<double> exact = train_with<double>(options, 20, 0.01, 0.5);
    options.master = DType::kF64;
    const std::vector<float> found = train_with<float>(options, 20, 0.01, 0.5);
    for (std::size_t i = 0; i < kMasters; ++i) EXPECT_EQ(found[i], static_cast<float>(exact[i])) << name(kind) << i;
  }
}

TEST(MasterValues, KeepUpdatesBelowTheLastDigit) {
  OptimizerOptions options{.momentum = 0};
  const auto descend = [&] {
    Optimizer<float> optimizer(options, small_layout(), kMasters);
    std::vector<float> values(kMasters, 1), gradients(kMasters, 1);
    for (std::int64_t step = 0; step < 1000; ++step) {
      optimizer.update(Execution(), values, gradients, {.learning_rate = 1e-8, .training_step = step});
    }
    return values[0];
  };
  EXPECT_EQ(descend(), 1.0F) << "each update is rounded away";
  options.master = DType::kF64;
  EXPECT_EQ(descend(), static_cast<float>(1 - 1000 * 1e-8));
}

TEST(MasterValues, FollowParametersThatTheProgramChanges) {
  Optimizer<float> optimizer({.momentum = 0, .master = DType::kF64}, small_layout(), kMasters);
  std::vector<float> values = start_values<float>();
  const std::vector<float> gradients(kMasters, 1);
  const auto step = [&] {
    optimizer.update(Execution(), values, gradients, {.learning_rate = 0.25, .training_step = 1});
  };
  step();
  values[2] = 8;
  step();
  EXPECT_EQ(values[2], 7.75F);
  EXPECT_EQ(values[1], -1.75F);
}

TEST(MasterValues, AreAStateOfTheirType) {
  Optimizer<float> optimizer({.kind = OptimizerKind::kAdam, .ema_decay = 0.5, .master = DType::kF64}, small_layout(),
                             kMasters);
  EXPECT_EQ(optimizer.precision(), (Precision{DType::kF32, DType::kF64}));
  std::vector<std::string> names;
  for (const OptimizerState& state : optimizer.states()) {
    names.push_back(state.name);
    EXPECT_EQ(state.values.dtype(), DType::kF64) << state.name;
    EXPECT_EQ(state.values.count(), kMasters) << state.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("first_moment", "second_moment", "master", "ema"));
  EXPECT_EQ(optimizer.average().data, optimizer.states().back().values.view().data);
}

TEST(MasterValues, TheAverageIsOfThem) {
  OptimizerOptions options{.ema_decay = 0.75};
  const auto average_after = [&](auto scalar) {
    using Scalar = decltype(scalar);
    Optimizer<Scalar> optimizer(options, small_layout(), kMasters);
    std::vector<Scalar> values = start_values<Scalar>();
    for (std::int64_t step = 0; step < 5; ++step) {
      const std::vector<Scalar> gradients = exact_gradients<Scalar>(step);
      optimizer.update(Execution(), values, gradients, {.learning_rate = 0.1, .training_step = step});
    }
    const auto* const average = static_cast<const double*>(optimizer.average().data);
    return std::vector<double>(average, average + kMasters);
  };
  const std::vector<double> exact = average_after(double{});
  options.master = DType::kF64;
  EXPECT_EQ(average_after(float{}), exact);
}

TEST(MasterValues, FrozenParametersKeepTheirBits) {
  OptimizerOptions options{.master = DType::kF64};
  options.groups = {{.pattern = "weight", .trainable = false}};
  const std::vector<float> found = train_with<float>(options, 5);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i], start_values<float>()[i]);
  EXPECT_TRUE(std::signbit(found[3])) << "-0 stays -0";
  EXPECT_NE(found[4], start_values<float>()[4]);
}

class Fixed final : public UpdateRule<double> {
 public:
  std::string name() const override { return "fixed"; }
  std::vector<std::string> states() const override { return {}; }
  void update(VectorView<double> values, VectorView<const double> gradients, std::span<const VectorView<double>>,
              const UpdateFacts& facts) override {
    EXPECT_EQ(facts.execution.precision().master, DType::kF64);
    for (std::size_t i = 0; i < values.size(); ++i) values.host()[i] -= 1e-12 * gradients.host()[i];
  }
};

TEST(MasterValues, AnOwnRuleIsOfTheirType) {
  OptimizerOptions options{.kind = OptimizerKind::kOwn, .master = DType::kF64};
  expect_invalid([&] { Optimizer<float>(options, small_layout(), kMasters); }, {"own.f64 is empty"});
  options.own.f64 = [] { return std::make_unique<Fixed>(); };
  Optimizer<float> optimizer(options, small_layout(), kMasters);
  std::vector<float> values(kMasters, 1);
  const std::vector<float> gradients(kMasters, 2);
  optimizer.update(Execution(), values, gradients, {});
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(optimizer.states()[0].values.as<double>()[0], 1 - 2e-12);
}

TEST(MasterValues, OtherTypesAreRefused) {
  expect_invalid([] { Optimizer<float>({.master = DType::kF16}, small_layout(), kMasters); },
                 {"cannot be f16 for a model of f32", "choose f32 or f64"});
  expect_invalid([] { Optimizer<double>({.master = DType::kF32}, small_layout(), kMasters); },
                 {"cannot be f32 for a model of f64", "choose f64"});
  EXPECT_EQ(Optimizer<float>({.master = DType::kF32}, small_layout(), kMasters).precision().master, DType::kF32);
}

TEST(Optimizer, RefusesVectorsOfAnotherLength) {
  Optimizer<float> optimizer({}, small_layout(), kMasters);
  std::vector<float> values(kMasters), few(kMasters - 1);
  expect_invalid([&] { optimizer.update(Execution(), values, few, {}); },
                 {"updates 6 parameters from as many gradients, got 6 and 5"});
  expect_invalid([&] { optimizer.update(Execution(), few, values, {}); }, {"got 5 and 6"});
}

TEST(Optimizer, TakesSpansAndArrays) {
  Optimizer<float> optimizer({.momentum = 0}, small_layout(), kMasters);
  std::array<float, kMasters> values{}, gradients{1};
  optimizer.update(Execution(), std::span(values), gradients, {.learning_rate = 1});
  EXPECT_EQ(values[0], -1.0F);
  expect_invalid([&] { optimizer.update(Execution(), values, gradients, {.clip_norm = -1}); }, {"clipping norm of -1"});
  static_assert(!std::is_convertible_v<std::vector<float>, VectorView<const float>>, "a temporary would be gone");
}

TEST(Optimizer, ClipsTheScaledGradients) {
  const auto update = [](double scale, double clip) {
    Optimizer<double> optimizer({.momentum = 0}, small_layout(), kMasters);
    std::vector<double> values(kMasters), gradients(kMasters);
    gradients[0] = 3, gradients[5] = 4;
    optimizer.update(Execution(), values, gradients, {.learning_rate = 1, .gradient_scale = scale, .clip_norm = clip});
    return std::vector<double>{values[0], values[5]};
  };
  EXPECT_THAT(update(1, 0), testing::ElementsAre(-3, -4));
  EXPECT_THAT(update(1, 2.5), testing::ElementsAre(-1.5, -2));
  EXPECT_THAT(update(0.5, 2.5), testing::ElementsAre(-1.5, -2)) << "the scaled norm is 2.5";
  EXPECT_THAT(update(0.5, 1.25), testing::ElementsAre(-0.75, -1));
}

}  // namespace
}  // namespace farandole::trainer
