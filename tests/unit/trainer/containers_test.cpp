// SPDX-License-Identifier: Apache-2.0
// Layers that contain layers, alone and in a model.
#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
std::unique_ptr<Layer<Scalar>> residual_block(bool with_shortcut) {
  LayerList<Scalar> body = layers<Scalar>(conv2d<Scalar>({.channels = 4, .padding = 1}), batch_normalization<Scalar>(),
                                          hyperbolic_tangent<Scalar>());
  if (!with_shortcut) return residual<Scalar>(std::move(body));
  return residual<Scalar>(std::move(body),
                          layers<Scalar>(conv2d<Scalar>({.channels = 4, .kernel = 1}), batch_normalization<Scalar>()));
}

std::vector<std::string> parameter_names(const Layer<float>& layer) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : layer.parameters()) names.push_back(spec.name);
  return names;
}

TEST(Sequence, EqualsItsLayersInOrder) {
  LayerHarness<float> whole(sequence<float>(layers<float>(dense<float>(5), gelu<float>(), dense<float>(3))), {7});
  EXPECT_EQ(whole.output_shape, Shape({3}));
  LayerHarness<float> first(dense<float>(5), {7}), middle(gelu<float>(), {5}), last(dense<float>(3), {5});
  for (std::size_t p = 0; p < 2; ++p) {
    std::copy_n(whole.parameters[p].begin(), first.parameters[p].size(), first.parameters[p].begin());
    std::copy_n(whole.parameters[p + 2].begin(), last.parameters[p].size(), last.parameters[p].begin());
  }
  const auto input = normal_tensor<float>(4, {7}, 60);
  const Tensor<float>& expected = last.forward(middle.forward(first.forward(input)));
  const Tensor<float>& output = whole.forward(input);
  EXPECT_TRUE(std::equal(output.host().begin(), output.host().end(), expected.data()));
  EXPECT_EQ(parameter_names(whole.layer()),
            (std::vector<std::string>{"0.dense.weight", "0.dense.bias", "2.dense.weight", "2.dense.bias"}));
}

TEST(Residual, AddsTheShortcut) {
  LayerHarness<float> identity(residual<float>(layers<float>(dense<float>(6))), {6});
  LayerHarness<float> branches(residual<float>(layers<float>(dense<float>(2)), layers<float>(dense<float>(2))), {6});
  LayerHarness<float> alone(dense<float>(6), {6}), left(dense<float>(2), {6}), right(dense<float>(2), {6});
  for (std::size_t p = 0; p < 2; ++p) {
    std::copy_n(identity.parameters[p].begin(), alone.parameters[p].size(), alone.parameters[p].begin());
    std::copy_n(branches.parameters[p].begin(), left.parameters[p].size(), left.parameters[p].begin());
    std::copy_n(branches.parameters[p + 2].begin(), right.parameters[p].size(), right.parameters[p].begin());
  }
  const auto input = normal_tensor<float>(3, {6}, 61);
  const Tensor<float>&sum = identity.forward(input), &body = alone.forward(input);
  for (std::int64_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum.data()[i], body.data()[i] + input.data()[i]);
  const Tensor<float>&both = branches.forward(input), &one = left.forward(input), &other = right.forward(input);
  for (std::int64_t i = 0; i < both.size(); ++i) EXPECT_EQ(both.data()[i], one.data()[i] + other.data()[i]);
}

TEST(Residual, GradientsMatchCentralDifferences) {
  const Shape image{4, 3, 4};
  for (const bool with_shortcut : {false, true}) {
    LayerHarness<double> harness(residual_block<double>(with_shortcut), image);
    check_gradients(harness, normal_tensor<double>(3, image, 62));
  }
  LayerList<double> inner = layers<double>(dense<double>(5), hyperbolic_tangent<double>());
  LayerHarness<double> nested(
      residual<double>(layers<double>(
          dense<double>(4), residual<double>(std::move(inner), layers<double>(dense<double>(5))), dense<double>(6))),
      {6});
  check_gradients(nested, normal_tensor<double>(4, {6}, 63));
}

TEST(Residual, NamesTellTheBranchesApart) {
  LayerHarness<float> harness(residual_block<float>(true), {4, 3, 4});
  EXPECT_EQ(parameter_names(harness.layer()),
            (std::vector<std::string>{"body.0.conv2d.weight", "body.0.conv2d.bias", "body.1.batch_normalization.scale",
                                      "body.1.batch_normalization.shift", "shortcut.0.conv2d.weight",
                                      "shortcut.0.conv2d.bias", "shortcut.1.batch_normalization.scale",
                                      "shortcut.1.batch_normalization.shift"}));
  const std::vector<StatisticSpec> statistics = harness.layer().statistics();
  ASSERT_EQ(statistics.size(), 4U);
  EXPECT_EQ(statistics[3].name, "shortcut.1.batch_normalization.variance");
  EXPECT_EQ(harness.layer().name(),
            "residual (conv2d 3x3, 4 channels; batch_normalization; hyperbolic_tangent), shortcut (conv2d "
            "1x1, 4 channels; batch_normalization)");
}

TEST(Residual, EveryStatisticIsWritten) {
  LayerHarness<float> harness(residual_block<float>(true), {4, 3, 4});
  for (auto& values : harness.statistics) std::fill(values.begin(), values.end(), NAN);
  harness.forward(normal_tensor<float>(3, {4, 3, 4}, 64));
  for (const auto& values : harness.statistics) {
    for (const float value : values) EXPECT_TRUE(std::isfinite(value));
  }
}

/// Sums of two branches that drop half of a vector of ones: 4 where both keep the element, 0 where both drop it.
std::vector<float> sums_of_dropouts(std::uint64_t layer) {
  LayerHarness<float> harness(residual<float>(layers<float>(dropout<float>(0.5)), layers<float>(dropout<float>(0.5))),
                              {400});
  harness.pass.layer = layer;
  Tensor<float> input(1, {400});
  std::fill(input.host().begin(), input.host().end(), 1.0F);
  const auto values = harness.forward(input).host();
  return {values.begin(), values.end()};
}

TEST(Containers, InnerLayersDrawTheirOwnRandomNumbers) {
  const std::vector<float> sums = sums_of_dropouts(3);
  // Equal branches give 0 or 4; independent branches give 2 for half of the elements, with a deviation of 10.
  EXPECT_NEAR(static_cast<double>(std::count(sums.begin(), sums.end(), 2.0F)), 200, 60);
  EXPECT_EQ(sums, sums_of_dropouts(3));
  EXPECT_NE(sums, sums_of_dropouts(4));

  LayerHarness<float> row(sequence<float>(layers<float>(dropout<float>(0.5), dropout<float>(0.5))), {400});
  Tensor<float> input(1, {400});
  std::fill(input.host().begin(), input.host().end(), 1.0F);
  const auto values = row.forward(input).host();  // equal numbers would keep half of the elements
  EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), 4.0F)), 100, 52);
}

TEST(Containers, WorkInsideAModel) {
  LayerList<double> list =
      layers<double>(residual_block<double>(true), dense<double>(6),
                     residual<double>(layers<double>(layer_normalization<double>(), dense<double>(6), gelu<double>())),
                     dense<double>(3));
  Model<double> model({4, 3, 2}, std::move(list));
  model.initialize(kTestSeed);
  const auto input = normal_tensor<double>(3, {4, 3, 2}, 65), gradient = normal_tensor<double>(3, {3}, 66);
  model.forward({.training = true}, input);
  std::fill(model.gradients().host().begin(), model.gradients().host().end(), NAN);
  std::vector<std::size_t> ready;
  model.backward({.training = true}, input, gradient, [&](std::size_t index) {
    ready.push_back(index);
    const NamedSpan& span = model.parameter_layout()[index];
    for (std::size_t i = 0; i < span.count; ++i) {
      EXPECT_FALSE(std::isnan(model.gradients().host()[span.first + i])) << span.name << " is not final";
    }
  });
  const std::size_t count = model.parameter_layout().size();
  ASSERT_EQ(ready.size(), count);
  for (std::size_t k = 0; k < count; ++k) EXPECT_EQ(ready[k], count - 1 - k);
  EXPECT_EQ(model.parameter_layout()[4].name, "0.residual.shortcut.0.conv2d.weight");
  EXPECT_EQ(model.parameter_layout()[12].name, "2.residual.body.1.dense.weight");
  EXPECT_FALSE(model.parameter_layout()[10].decays);  // scale of the normalisation
  EXPECT_EQ(model.statistic_layout()[0].name, "0.residual.body.1.batch_normalization.mean");
}

TEST(Containers, ImpossibleBranchesAreRefused) {
  expect_invalid([] { sequence<float>({}); }, {"sequence", "no layers"});
  expect_invalid([] { residual<float>({}); }, {"residual: the body has no layers"});
  expect_invalid([] { residual<float>(layers<float>(dense<float>(3), std::unique_ptr<Layer<float>>())); },
                 {"residual: body layer 1 is null"});
  expect_invalid([] { residual<float>(layers<float>(dense<float>(3)))->prepare({4}); },
                 {"same shape", "body layer 0 (dense, 3 units) gives 3", "the residual's input gives 4"});
  expect_invalid([] { sequence<float>(layers<float>(dense<float>(3), max_pool2d<float>(2)))->prepare({4}); },
                 {"sequence: layer 1 does not fit layer 0 (dense, 3 units)", "max_pool2d"});
}

}  // namespace
}  // namespace farandole::trainer
