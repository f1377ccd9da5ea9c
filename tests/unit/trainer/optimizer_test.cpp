// SPDX-License-Identifier: Apache-2.0
// Compares optimizers with the formulas in optimizer.h, written out for one element.
#include "farandole/trainer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

/// A weight of 5 elements that decays and a bias of 2 that does not, with a gap between them.
std::vector<NamedSpan> layout() {
  return {{"weight", {5}, 0, 5, true}, {"bias", {2}, 6, 2, false}};
}
constexpr std::size_t kParameters = 8, kGap = 5;

double gradient_at(std::int64_t step, std::size_t i) {
  return std::sin(static_cast<double>(step) * 1.7 + static_cast<double>(i) * 0.9) * 3;
}
bool decays(std::size_t i) {
  return i < 5;
}

/// Trains 6 steps and compares every element with `reference(parameter, gradient, decays, step)`, which keeps its
/// state.
template <class Scalar, class Reference>
void compare(const OptimizerOptions& options, double rate, double scale, Reference make_reference, double tolerance) {
  Optimizer<Scalar> optimizer(options, layout(), kParameters);
  std::vector<Scalar> parameters(kParameters, Scalar{0.5}), gradients(kParameters);
  std::vector<double> expected(kParameters, 0.5);
  std::vector<decltype(make_reference())> references;
  for (std::size_t i = 0; i < kParameters; ++i) references.push_back(make_reference());
  for (std::int64_t step = 0; step < 6; ++step) {
    for (std::size_t i = 0; i < kParameters; ++i) {
      gradients[i] = static_cast<Scalar>(gradient_at(step, i));
      if (i != kGap) references[i](expected[i], gradient_at(step, i) * scale, decays(i), step);
    }
    optimizer.update(Execution(optimizer.precision()), parameters, VectorView<Scalar>(gradients),
                     {.learning_rate = rate, .training_step = step, .gradient_scale = scale});
    for (std::size_t i = 0; i < kParameters; ++i) ASSERT_NEAR(parameters[i], expected[i], tolerance) << "element " << i;
  }
  EXPECT_EQ(parameters[kGap], Scalar{0.5});
}

template <class Scalar>
constexpr double kTolerance = std::is_same_v<Scalar, float> ? 2e-5 : 1e-13;

template <class Scalar>
class OptimizerOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerOf, Scalars);

TYPED_TEST(OptimizerOf, SgdWithMomentumAndDecay) {
  for (const bool nesterov : {false, true}) {
    const auto reference = [&] {
      return [nesterov, v = 0.0](double& p, double g, bool decays, std::int64_t) mutable {
        if (decays) g += 0.01 * p;
        v = 0.9 * v + g;
        p -= 0.1 * (nesterov ? g + 0.9 * v : v);
      };
    };
    compare<TypeParam>({.weight_decay = 0.01, .nesterov = nesterov}, 0.1, 0.5, reference, kTolerance<TypeParam>);
  }
}

TYPED_TEST(OptimizerOf, AdamAndAdamW) {
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    const auto reference = [&] {
      return [kind, m1 = 0.0, m2 = 0.0](double& p, double g, bool decays, std::int64_t step) mutable {
        const double w = decays ? 0.1 : 0.0;
        if (kind == OptimizerKind::kAdam) g += w * p;
        if (kind == OptimizerKind::kAdamW) p -= 0.01 * w * p;
        m1 = 0.9 * m1 + 0.1 * g;
        m2 = 0.999 * m2 + 0.001 * g * g;
        const double t = static_cast<double>(step) + 1;
        p -= 0.01 * (m1 / (1 - std::pow(0.9, t))) / (std::sqrt(m2 / (1 - std::pow(0.999, t))) + 1e-8);
      };
    };
    compare<TypeParam>({.kind = kind, .weight_decay = 0.1}, 0.01, 1, reference, kTolerance<TypeParam>);
  }
}

TEST(Optimizer, StatesAreNamedAndZeroAtFirst) {
  Optimizer<double> sgd({}, layout(), kParameters), adam({.kind = OptimizerKind::kAdam}, layout(), kParameters);
  ASSERT_EQ(sgd.states().size(), 1U);
  EXPECT_EQ(sgd.states()[0].name, "momentum");
  ASSERT_EQ(adam.states().size(), 2U);
  EXPECT_EQ(adam.states()[1].name, "second_moment");
  for (std::size_t i = 0; i < kParameters; ++i) EXPECT_EQ(adam.states()[1].values.as<double>()[i], 0);
}

TEST(Optimizer, OptionsOutOfRangeAreRefused) {
  for (const OptimizerOptions& options :
       {OptimizerOptions{.momentum = 1}, OptimizerOptions{.beta1 = -0.1}, OptimizerOptions{.beta2 = std::nan("")},
        OptimizerOptions{.weight_decay = -1}, OptimizerOptions{.epsilon = 0},
        OptimizerOptions{.momentum = 0, .nesterov = true}}) {
    EXPECT_THROW(Optimizer<float>(options, layout(), kParameters), InvalidArgument);
  }
}

TEST(Optimizer, NamesAreReadBack) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    EXPECT_EQ(parse_optimizer(name(kind)), kind);
  }
  EXPECT_THROW(parse_optimizer("lion"), InvalidArgument);
}

TEST(Clipping, NormAndFactor) {
  std::vector<float> values(1001, 0.5F);
  EXPECT_DOUBLE_EQ(global_norm<float>(values), std::sqrt(1001 * 0.25));
  EXPECT_DOUBLE_EQ(global_norm<double>({}), 0);
  // Squares that do not fit in f32.
  EXPECT_NEAR(global_norm<float>(std::vector<float>{3e25F, 4e25F}), 5e25, 1e19);
  EXPECT_DOUBLE_EQ(clipping_factor(5, 2), 0.4);
  EXPECT_DOUBLE_EQ(clipping_factor(1, 2), 1);
  EXPECT_DOUBLE_EQ(clipping_factor(5, 0), 1);
}

}  // namespace
}  // namespace farandole::trainer
