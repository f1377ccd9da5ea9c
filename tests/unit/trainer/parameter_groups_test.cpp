// SPDX-License-Identifier: Apache-2.0
// Parameter groups, frozen parameters, the moving average, and update rules of the program's own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/optimizer.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;

/// Two layers, each with a weight that decays and a bias that does not.
std::vector<NamedSpan> two_layers() {
  return {{"0.dense.weight", {3}, 0, 3, true},
          {"0.dense.bias", {2}, 3, 2, false},
          {"2.dense.weight", {4}, 5, 4, true},
          {"2.dense.bias", {1}, 9, 1, false}};
}
constexpr std::size_t kValues = 10;

std::vector<double> gradients_at(std::int64_t step) {
  std::vector<double> gradients(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    gradients[i] = std::cos(static_cast<double>(step) * 2.3 + static_cast<double>(i));
  }
  return gradients;
}

std::vector<double> initial_values() {
  std::vector<double> values(kValues);
  for (std::size_t i = 0; i < kValues; ++i) values[i] = 0.1 * static_cast<double>(i) - 0.37;
  return values;
}

const double* average_of(Optimizer<double>& optimizer) {
  return static_cast<const double*>(optimizer.average().data);
}

/// Parameters after each of `steps` updates with the rate 0.1.
std::vector<std::vector<double>> course(Optimizer<double>& optimizer, std::int64_t steps) {
  std::vector<std::vector<double>> course;
  std::vector<double> values = initial_values();
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<double> gradients = gradients_at(step);
    optimizer.update(Execution(optimizer.precision()), values, VectorView<double>(gradients),
                     {.learning_rate = 0.1, .training_step = step});
    course.push_back(values);
  }
  return course;
}

std::vector<double> train(const OptimizerOptions& options, std::int64_t steps = 5) {
  Optimizer<double> optimizer(options, two_layers(), kValues);
  return course(optimizer, steps).back();
}

TEST(ParameterGroups, FactorAndDecayOfTheFirstGroupThatFits) {
  OptimizerOptions options{.weight_decay = 0.5, .momentum = 0};
  options.groups = {{.pattern = "2.dense.bias", .rate_factor = 3, .weight_decay = 0.25},
                    {.pattern = "2.*", .rate_factor = 0.5},
                    {.pattern = "*", .weight_decay = 0.125}};
  std::vector<double> expected = initial_values();
  for (std::int64_t step = 0; step < 5; ++step) {
    const std::vector<double> gradients = gradients_at(step);
    for (std::size_t i = 0; i < kValues; ++i) {
      const double rate = i < 5 ? 0.1 : i < 9 ? 0.05 : 0.3, decay = i < 5 ? 0.125 : i < 9 ? 0.5 : 0.25;
      expected[i] -= rate * (gradients[i] + decay * expected[i]);
    }
  }
  const std::vector<double> found = train(options);
  for (std::size_t i = 0; i < kValues; ++i) EXPECT_NEAR(found[i], expected[i], 1e-14) << "element " << i;
}

TEST(ParameterGroups, APatternThatFitsNothingListsTheNames) {
  for (const char* pattern : {"1.*", "0.dense", "0.dense.weights", "", "*bias"}) {
    const std::string message = message_of<InvalidArgument>([&] {
      train({.groups = {{.pattern = "0.*"}, {.pattern = pattern}}});
    });
    EXPECT_TRUE(contains(message, "no parameter fits the pattern '" + std::string(pattern) + "'"));
    EXPECT_TRUE(contains(message, "0.dense.weight, 0.dense.bias, 2.dense.weight, 2.dense.bias"));
  }
}

TEST(ParameterGroups, OptionsOutOfRangeAreRefused) {
  for (const ParameterGroup& group :
       {ParameterGroup{.pattern = "*", .rate_factor = -1}, ParameterGroup{.pattern = "*", .rate_factor = std::nan("")},
        ParameterGroup{.pattern = "*", .weight_decay = -1},
        ParameterGroup{.pattern = "*", .weight_decay = std::nan("")}}) {
    EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { train({.groups = {group}}); }), "of the parameters '*' is"));
  }
}

TEST(FrozenParameters, KeepTheirBitsWithEveryRule) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    OptimizerOptions options{.kind = kind, .weight_decay = 0.1, .ema_decay = 0.9};
    const std::vector<double> all = train(options);
    options.groups = {{.pattern = "0.*", .trainable = false}};
    Optimizer<double> optimizer(options, two_layers(), kValues);
    const std::vector<double> found = course(optimizer, 5).back();
    for (std::size_t i = 0; i < kValues; ++i) {
      EXPECT_EQ(found[i], i < 5 ? initial_values()[i] : all[i]) << name(kind) << ", element " << i;
      EXPECT_TRUE(i >= 5 || average_of(optimizer)[i] == initial_values()[i]) << name(kind) << ", element " << i;
    }
  }
}

TEST(FrozenParameters, DoNotCountForTheNorm) {
  std::vector<double> gradients = gradients_at(0);
  const Optimizer<double> all({}, two_layers(), kValues);
  EXPECT_EQ(all.gradient_norm(Execution(), gradients), global_norm<double>(gradients));
  const Optimizer<double> frozen(
      {.groups = {{.pattern = "0.dense.weight", .trainable = false}, {.pattern = "2.dense.bias", .trainable = false}}},
      two_layers(), kValues);
  double squares = 0;
  for (std::size_t i = 3; i < 9; ++i) squares += gradients[i] * gradients[i];
  EXPECT_NEAR(frozen.gradient_norm(Execution(), gradients), std::sqrt(squares), 1e-15);
  gradients[0] = std::numeric_limits<double>::infinity();
  EXPECT_NEAR(frozen.gradient_norm(Execution(), gradients), std::sqrt(squares), 1e-15);
}

TEST(MovingAverage, FollowsTheParametersAndChangesNothing) {
  OptimizerOptions options{.kind = OptimizerKind::kAdam};
  const std::vector<double> without = train(options);
  options.ema_decay = 0.75;
  Optimizer<double> optimizer(options, two_layers(), kValues);
  const auto parameters = course(optimizer, 5);
  EXPECT_EQ(parameters.back(), without);
  std::vector<double> expected = initial_values();
  for (const auto& after : parameters) {
    for (std::size_t i = 0; i < kValues; ++i) expected[i] += 0.25 * (after[i] - expected[i]);
  }
  ASSERT_EQ(optimizer.average().count, kValues);
  for (std::size_t i = 0; i < kValues; ++i) EXPECT_NEAR(average_of(optimizer)[i], expected[i], 1e-14);
  EXPECT_EQ(optimizer.states().back().name, "ema");
  EXPECT_EQ(optimizer.states().back().values.view().data, optimizer.average().data);
}

TEST(MovingAverage, IsAbsentByDefaultAndItsDecayIsChecked) {
  Optimizer<float> optimizer({}, two_layers(), kValues);
  EXPECT_EQ(optimizer.average().count, 0U);
  EXPECT_EQ(optimizer.states().size(), 1U);
  for (const double decay : {-0.1, 1.0, std::nan("")}) {
    EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { train({.ema_decay = decay}); }), "must be in [0, 1)"));
  }
}

/// p -= lr * scale * g / sqrt(sum of squares so far), which is Adagrad without epsilon; remembers the names it has
/// seen.
class OwnAdagrad : public UpdateRule<double> {
 public:
  explicit OwnAdagrad(std::vector<std::string> states, std::vector<std::string>* seen = nullptr)
      : states_(std::move(states)), seen_(seen) {}
  std::string name() const override { return "adagrad"; }
  std::vector<std::string> states() const override { return states_; }
  void update(VectorView<double> parameters, VectorView<const double> all_gradients,
              std::span<const VectorView<double>> states, const UpdateFacts& facts) override {
    const std::span<double> values = parameters.host();
    const std::span<const double> gradients = all_gradients.host();
    if (seen_ != nullptr) seen_->push_back(facts.parameter.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double g = gradients[i] * facts.scale() + facts.weight_decay * values[i];
      states[0].host()[i] += g * g;
      values[i] -= facts.learning_rate * g / std::sqrt(states[0].host()[i]);
    }
  }

 private:
  const std::vector<std::string> states_;
  std::vector<std::string>* const seen_;
};

OptimizerOptions with_own(const std::vector<std::string>& states, std::vector<std::string>* seen = nullptr) {
  OptimizerOptions options{.kind = OptimizerKind::kOwn};
  options.own.f64 = [=] { return std::make_unique<OwnAdagrad>(states, seen); };
  return options;
}

TEST(OwnRule, UpdatesEachTrainableParameterWithItsStates) {
  std::vector<std::string> seen;
  OptimizerOptions options = with_own({"squares"}, &seen);
  options.weight_decay = 0.5;
  options.ema_decay = 0.9;
  options.groups = {{.pattern = "2.dense.weight", .trainable = false}, {.pattern = "2.*", .rate_factor = 2}};
  Optimizer<double> optimizer(options, two_layers(), kValues);
  ASSERT_EQ(optimizer.states().size(), 2U);
  EXPECT_EQ(optimizer.states()[0].name, "squares");
  EXPECT_EQ(optimizer.rule_name(), "adagrad");
  const std::vector<double> found = course(optimizer, 3).back();
  std::vector<double> expected = initial_values(), squares(kValues);
  for (std::int64_t step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < kValues; ++i) {
      if (i >= 5 && i < 9) continue;
      const double g = gradients_at(step)[i] + (i < 3 ? 0.5 * expected[i] : 0);
      squares[i] += g * g;
      expected[i] -= (i < 5 ? 0.1 : 0.2) * g / std::sqrt(squares[i]);
    }
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-13) << "element " << i;
    EXPECT_NEAR(optimizer.states()[0].values.as<double>()[i], squares[i], 1e-13);
  }
  seen.resize(3);
  EXPECT_EQ(seen, (std::vector<std::string>{"0.dense.weight", "0.dense.bias", "2.dense.bias"}));
}

TEST(OwnRule, WrongOptionsSayWhatIsExpected) {
  const auto refusal = [](const OptimizerOptions& options) {
    return message_of<InvalidArgument>([&] { train(options); });
  };
  EXPECT_TRUE(contains(refusal({.kind = OptimizerKind::kOwn}), "OptimizerOptions::own.f64 is empty"));
  OptimizerOptions options = with_own({"squares"});
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { make_update_rule<float>(options); }), "own.f32 is empty"));
  options.kind = OptimizerKind::kAdam;
  EXPECT_TRUE(contains(refusal(options), "choose OptimizerKind::kOwn"));
  EXPECT_TRUE(contains(refusal(with_own({"squares", "squares"})), "a state named 'squares'"));
  EXPECT_TRUE(contains(refusal(with_own({"ema"})), "a state named 'ema'"));
  EXPECT_TRUE(contains(refusal(with_own({""})), "a state named ''"));
  options = {.kind = OptimizerKind::kOwn};
  options.own.f64 = [] { return nullptr; };
  EXPECT_TRUE(contains(refusal(options), "own.f64 has returned no update rule"));
}

TEST(BuiltInRules, HaveTheNamesOfTheirKinds) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    EXPECT_EQ(make_update_rule<float>({.kind = kind})->name(), name(kind));
  }
  EXPECT_THROW(parse_optimizer("own"), InvalidArgument);
}

}  // namespace
}  // namespace farandole::trainer
