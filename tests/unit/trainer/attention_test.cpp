// SPDX-License-Identifier: Apache-2.0
// Multi-head self-attention against the formula written element by element, and against central differences.
#include "farandole/trainer/loss.h"
#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

/// The output for one sample x of {length, units}; parameters as the layer's.
std::vector<double> expected_output(const std::vector<double>& x, const std::vector<std::vector<double>>& parameters,
                                    std::size_t length, std::size_t units, const AttentionOptions& options) {
  const auto heads = static_cast<std::size_t>(options.heads);
  const std::size_t head_units = units / heads;
  const auto projected = [&](std::size_t position, std::size_t column) {
    double sum = parameters[1][column];
    for (std::size_t i = 0; i < units; ++i) sum += x[position * units + i] * parameters[0][i * 3 * units + column];
    return sum;
  };
  std::vector<double> result(length * units);
  for (std::size_t position = 0; position < length; ++position) {
    std::vector<double> context(units);
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t seen = options.causal ? position + 1 : length;
      std::vector<double> weights(seen);
      double total = 0;
      for (std::size_t other = 0; other < seen; ++other) {
        double score = 0;
        for (std::size_t i = head * head_units; i < (head + 1) * head_units; ++i) {
          score += projected(position, i) * projected(other, units + i);
        }
        total += weights[other] = std::exp(score / std::sqrt(static_cast<double>(head_units)));
      }
      for (std::size_t other = 0; other < seen; ++other) {
        for (std::size_t i = head * head_units; i < (head + 1) * head_units; ++i) {
          context[i] += weights[other] / total * projected(other, 2 * units + i);
        }
      }
    }
    for (std::size_t column = 0; column < units; ++column) {
      double& y = result[position * units + column] = parameters[3][column];
      for (std::size_t i = 0; i < units; ++i) y += context[i] * parameters[2][i * units + column];
    }
  }
  return result;
}

template <class Scalar>
void check_attention(double tolerance) {
  for (const AttentionOptions options :
       {AttentionOptions{.heads = 1}, AttentionOptions{.heads = 3}, AttentionOptions{.heads = 2, .causal = true}}) {
    LayerHarness<Scalar> harness(attention<Scalar>(options), {9, 6});  // 81 scores: more than a block
    ASSERT_EQ(harness.output_shape, Shape({9, 6}));
    std::vector<std::vector<double>> parameters;
    for (const auto& values : harness.parameters) parameters.emplace_back(values.begin(), values.end());
    const Tensor<Scalar> input = normal_tensor<Scalar>(3, {9, 6}, 90);
    const Tensor<Scalar>& output = harness.forward(input);
    for (std::int64_t sample = 0; sample < 3; ++sample) {
      const Scalar* x = input.data() + sample * 54;
      const std::vector<double> expected = expected_output({x, x + 54}, parameters, 9, 6, options);
      EXPECT_LT(
          relative_error(std::span<const Scalar>(output.data() + sample * 54, 54), std::span<const double>(expected)),
          tolerance)
          << harness.layer().name();
    }
  }
}
TEST(Attention, ValuesEqualTheFormula) {
  check_attention<float>(1e-5);
  check_attention<double>(1e-12);
}

TEST(Attention, GradientsMatchCentralDifferences) {
  for (const bool causal : {false, true}) {
    LayerHarness<double> harness(attention<double>({.heads = 2, .causal = causal}), {5, 6});
    check_gradients(harness, normal_tensor<double>(2, {5, 6}, 91));
  }
}

TEST(Attention, FloatAgreesWithDouble) {
  LayerHarness<float> single(attention<float>({.heads = 4, .causal = true}), {17, 32});
  LayerHarness<double> twice(attention<double>({.heads = 4, .causal = true}), {17, 32});
  for (std::size_t p = 0; p < 4; ++p) {
    for (float& value : single.parameters[p]) value *= 0.25F;
    std::copy(single.parameters[p].begin(), single.parameters[p].end(), twice.parameters[p].begin());
  }
  const auto input = normal_tensor<float>(3, {17, 32}, 92), gradient = normal_tensor<float>(3, {17, 32}, 93);
  const auto &y = single.forward(input), &dx = single.backward(input, gradient);
  const auto &y2 = twice.forward(converted<double>(input)),
             &dx2 = twice.backward(converted<double>(input), converted<double>(gradient));
  EXPECT_LT(relative_error(y.host(), y2.host()), 1e-5);
  EXPECT_LT(relative_error(dx.host(), dx2.host()), 1e-5);
  for (std::size_t p = 0; p < 4; ++p) {
    EXPECT_LT(relative_error(std::span<const float>(single.gradients[p]), std::span<const double>(twice.gradients[p])),
              1e-5);
  }
}

TEST(Attention, CausalPositionsIgnoreLaterOnes) {
  LayerHarness<float> harness(attention<float>({.heads = 2, .causal = true}), {8, 4});
  Tensor<float> input = normal_tensor<float>(1, {8, 4}, 94);
  const Tensor<float> before = converted<float>(harness.forward(input));
  for (std::int64_t i = 5 * 4; i < 32; ++i) input.data()[i] += 1;
  const Tensor<float>& after = harness.forward(input);
  EXPECT_TRUE(std::equal(before.data(), before.data() + 20, after.data()));
  EXPECT_FALSE(std::equal(before.data() + 20, before.data() + 32, after.data() + 20));
}

TEST(Attention, LargeScoresStayFinite) {
  LayerHarness<float> harness(attention<float>({}), {4, 4});
  for (const float value : harness.forward(normal_tensor<float>(1, {4, 4}, 95, 1e4)).host()) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Attention, BlockOfATransformerLearns) {
  LayerList<double> mixing;
  mixing.push_back(layer_normalization<double>());
  mixing.push_back(attention<double>({.heads = 2}));
  LayerList<double> layers;
  layers.push_back(embedding<double>(4, 8));
  layers.push_back(positional_encoding<double>(PositionalEncoding::kLearned));
  layers.push_back(residual<double>(std::move(mixing)));
  layers.push_back(global_average_pool<double>());
  layers.push_back(dense<double>(2));
  Model<double> model({6}, std::move(layers));
  model.initialize(1);
  // The class is the parity of the number of zeros before the first one.
  Tensor<double> input(64, {6});
  std::vector<std::int32_t> labels(64);
  const CounterRandom random(kTestSeed, 96);
  for (std::size_t sample = 0; sample < 64; ++sample) {
    double* tokens = input.data() + sample * 6;
    for (std::size_t i = 0; i < 6; ++i) tokens[i] = static_cast<double>(random.below(sample * 6 + i, 4));
    labels[sample] = static_cast<std::int32_t>((std::find(tokens, tokens + 6, 1.0) - tokens) % 2);
  }
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    Tensor<double> gradient;
    const Pass pass{.training = true};
    last = softmax_cross_entropy<double>(model.forward(pass, input), labels, 1.0 / 64, &gradient) / 64;
    if (step == 0) first = last;
    model.backward(pass, input, gradient);
    for (std::size_t i = 0; i < model.parameters().size(); ++i)
      model.parameters().host()[i] -= 0.2 * model.gradients().host()[i];
  }
  EXPECT_LT(last, first / 4);
}

TEST(Attention, ImpossibleOptionsAndInputsAreRefused) {
  expect_invalid([] { attention<float>({.heads = 0}); }, {"attention", "at least 1", "0"});
  expect_invalid(
      [] {
        attention<float>({.heads = 3})->prepare({4, 8});
      },
      {"attention, 3 heads", "{length, units}", "multiple of 3", "4x8"});
  expect_invalid([] { attention<float>({})->prepare({4, 4, 8}); }, {"{length, units}", "4x4x8"});
}

}  // namespace
}  // namespace farandole::trainer
