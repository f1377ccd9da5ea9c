// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/model.h"

#include <numeric>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
Model<Scalar> small_model() {
  LayerList<Scalar> layers;
  layers.push_back(conv2d<Scalar>({.channels = 4}));
  layers.push_back(batch_normalization<Scalar>({.momentum = 0.25}));
  layers.push_back(relu<Scalar>());
  layers.push_back(max_pool2d<Scalar>(2));
  layers.push_back(dense<Scalar>(3));
  return Model<Scalar>({6, 6, 2}, std::move(layers));
}

const Pass kTraining{.training = true};

/// Forward, loss and backward; returns the sum of losses.
template <class Scalar>
double run(Model<Scalar>& model, const Tensor<Scalar>& input, const std::function<void(std::size_t)>& on_ready = {}) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(input.samples()));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3);
  Tensor<Scalar> gradient;
  const double loss_sum = softmax_cross_entropy<Scalar>(model.forward(kTraining, input), labels, 1, &gradient);
  model.backward(kTraining, input, gradient, on_ready);
  return loss_sum;
}

TEST(Model, LaysOutParametersAndStatistics) {
  auto model = small_model<float>();
  std::vector<std::string> names;
  std::size_t next = 0;
  for (const NamedSpan& span : model.parameter_layout()) {
    names.push_back(span.name);
    EXPECT_EQ(span.first, next);
    EXPECT_EQ(span.count, static_cast<std::size_t>(elements(span.shape)));
    EXPECT_EQ(span.decays, span.name.ends_with(".weight")) << span.name;
    next += span.count;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0.conv2d.weight", "0.conv2d.bias", "1.batch_normalization.scale",
                                             "1.batch_normalization.shift", "4.dense.weight", "4.dense.bias"}));
  ASSERT_EQ(model.statistic_layout().size(), 2U);
  EXPECT_EQ(model.statistic_layout()[1].name, "1.batch_normalization.variance");
  EXPECT_EQ(model.statistic_layout()[1].first, 4U);

  EXPECT_EQ(model.parameters().size(), next);
  EXPECT_EQ(model.gradients().size(), next);
  EXPECT_EQ(model.statistics().size(), 8U);
  EXPECT_EQ(model.reducible().size(), next + 8);
  EXPECT_EQ(model.reducible().host().data(), model.gradients().host().data());
  EXPECT_EQ(model.batch_statistics().host().data(), model.gradients().host().data() + next);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(model.reducible().host().data()) % 64, 0U);
  EXPECT_EQ(model.output_shape(), Shape({3}));
  EXPECT_NE(model.describe().find("conv2d 3x3, 4 channels"), std::string::npos);
}

TEST(Model, GradientsMatchCentralDifferences) {
  auto model = small_model<double>();
  model.initialize(kTestSeed);
  const auto input = normal_tensor<double>(5, {6, 6, 2}, 80);
  run(model, input);
  const std::vector<double> gradients(model.gradients().host().begin(), model.gradients().host().end());
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    double& parameter = model.parameters().host()[i];
    const double value = parameter;
    parameter = value + kStep;
    const double above = run(model, input);
    parameter = value - kStep;
    const double below = run(model, input);
    parameter = value;
    EXPECT_NEAR(gradients[i], (above - below) / (2 * kStep), 1e-6) << i << ", seed " << kTestSeed;
  }
}

TEST(Model, TellsWhenGradientsAreReadyFromTheLastToTheFirst) {
  auto model = small_model<double>();
  model.initialize(1);
  const auto input = normal_tensor<double>(4, {6, 6, 2}, 81);
  run(model, input);
  const std::vector<double> expected(model.gradients().host().begin(), model.gradients().host().end());
  std::fill(model.gradients().host().begin(), model.gradients().host().end(), std::numeric_limits<double>::quiet_NaN());
  std::vector<std::size_t> order;
  run(model, input, [&](std::size_t index) {
    order.push_back(index);
    const NamedSpan& span = model.parameter_layout()[index];
    for (std::size_t i = span.first; i < span.first + span.count; ++i)
      EXPECT_EQ(model.gradients().host()[i], expected[i]);
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}));
}

TEST(Model, InitialValuesDependOnTheSeedOnly) {
  auto single = small_model<float>(), again = small_model<float>();
  auto twice = small_model<double>();
  single.initialize(5), again.initialize(5), twice.initialize(5);
  EXPECT_TRUE(std::ranges::equal(single.parameters().host(), again.parameters().host()));
  for (std::size_t i = 0; i < twice.parameters().size(); ++i) {
    EXPECT_EQ(single.parameters().host()[i], static_cast<float>(twice.parameters().host()[i]));
  }
  again.initialize(6);
  EXPECT_FALSE(std::ranges::equal(single.parameters().host(), again.parameters().host()));

  const double bound = 1 / std::sqrt(3 * 3 * 2);  // of the convolution
  const NamedSpan& weight = twice.parameter_layout()[0];
  double largest = 0, sum = 0;
  for (const double value : twice.parameters().subview(weight.first, weight.count).host()) {
    largest = std::max(largest, std::abs(value));
    sum += value;
  }
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.9 * bound);
  EXPECT_LT(std::abs(sum) / static_cast<double>(weight.count), bound / 3);
  EXPECT_EQ(twice.parameters().host()[twice.parameter_layout()[2].first], 1);  // scale
  EXPECT_EQ(twice.statistics().host()[0], 0);
  EXPECT_EQ(twice.statistics().host()[4], 1);
}

TEST(Model, MovesStatistics) {
  auto model = small_model<double>();
  model.initialize(1);
  std::iota(model.batch_statistics().host().begin(), model.batch_statistics().host().end(), 8.0);
  model.move_statistics();
  EXPECT_DOUBLE_EQ(model.statistics().host()[0], 0.25 * 8);
  EXPECT_DOUBLE_EQ(model.statistics().host()[7], 1 + 0.25 * (15 - 1));
}

TEST(Model, FloatFollowsDoubleAndBitsDependOnNoHistory) {
  for (const std::string name : {"mlp", "cnn", "cnn_bn"}) {
    const Shape image{28, 28, 1};
    Model<float> fresh(image, layers_of<float>(name)), used(image, layers_of<float>(name));
    Model<double> exact(image, layers_of<double>(name));
    fresh.initialize(3), used.initialize(3), exact.initialize(3);
    const auto input = normal_tensor<float>(20, image, 82);
    for (const std::int64_t samples : {7, 1, 0, 33}) run(used, normal_tensor<float>(samples, image, 83));
    const double loss = run(fresh, input);
    EXPECT_EQ(loss, run(used, input)) << name;
    EXPECT_TRUE(std::ranges::equal(fresh.reducible().host(), used.reducible().host())) << name;
    EXPECT_NEAR(loss, run(exact, converted<double>(input)), 1e-5 * loss) << name;
  }
}

TEST(Model, NoSamplesGiveZeroGradients) {
  Model<float> model({28, 28, 1}, layers_of<float>("cnn_bn"));
  model.initialize(1);
  std::fill(model.reducible().host().begin(), model.reducible().host().end(), 7.0F);
  run(model, Tensor<float>(0, {28, 28, 1}));
  for (const float value : model.reducible().host()) ASSERT_EQ(value, 0);
}

TEST(Model, ABareForwardPredicts) {
  LayerList<float> layers;
  layers.push_back(batch_normalization<float>());
  layers.push_back(dropout<float>(0.5));
  Model<float> model({40}, std::move(layers));
  model.initialize(1);
  const Tensor<float> input = normal_tensor<float>(8, {40}, 61);
  const auto outputs = [&](const Pass& pass) {
    const auto values = model.forward(pass, input).host();
    return std::vector<float>(values.begin(), values.end());
  };
  // Before any training step the moving statistics are 0 and 1.
  const std::vector<float> predicted = outputs({});
  for (std::size_t i = 0; i < predicted.size(); ++i) ASSERT_NEAR(predicted[i], input.data()[i], 1e-4);
  EXPECT_EQ(predicted, outputs({.training = false}));
  const std::vector<float> trained = outputs(kTraining);
  EXPECT_GT(std::count(trained.begin(), trained.end(), 0.0F), 100);
}

TEST(Model, BackwardOfAPredictionIsRefused) {
  auto model = small_model<float>();
  model.initialize(1);
  const Tensor<float> input(2, {6, 6, 2}), gradient(2, {3});
  for (const bool forward_trains : {false, true}) {
    for (const bool backward_trains : {false, true}) {
      model.forward({.training = forward_trains}, input);
      const Pass pass{.training = backward_trains};
      if (forward_trains && backward_trains) {
        model.backward(pass, input, gradient);
        continue;
      }
      try {
        model.backward(pass, input, gradient);
        FAIL() << "was taken";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(".training = true"), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Model, MisfitsAreNamed) {
  LayerList<float> layers;
  layers.push_back(dense<float>(4));
  layers.push_back(conv2d<float>({}));
  try {
    Model<float> model({8}, std::move(layers));
    FAIL() << "a convolution after a dense layer was accepted";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("conv2d 3x3"), std::string::npos) << text;
    EXPECT_NE(text.find("dense, 4 units"), std::string::npos) << text;
  }
  EXPECT_THROW(Model<float>({8}, {}), InvalidArgument);
  EXPECT_THROW(layers_of<float>("resnet"), InvalidArgument);
  auto model = small_model<float>();
  EXPECT_THROW(model.forward({}, Tensor<float>(1, {6, 6, 1})), InvalidArgument);
  const Tensor<float> input(2, {6, 6, 2});
  EXPECT_THROW(model.backward({}, input, Tensor<float>(2, {3})), InvalidArgument);
}

/// A layer that names two of its values alike.
class Twins final : public Layer<float> {
 public:
  Twins(std::string parameter, std::string other, std::string statistic)
      : parameters_{std::move(parameter), std::move(other)}, statistic_(std::move(statistic)) {}
  std::string name() const override { return "twins, 2 gains"; }
  Shape prepare(const Shape& input) override { return input; }
  std::vector<ParameterSpec> parameters() const override { return {{parameters_[0], {2}}, {parameters_[1], {2}}}; }
  std::vector<StatisticSpec> statistics() const override { return {{statistic_, 2}}; }
  void forward(const Pass&, const Tensor<float>&, Tensor<float>&) override {}
  void backward(const Pass&, const Tensor<float>&, const Tensor<float>&, const Tensor<float>&,
                Tensor<float>*) override {}

 private:
  std::string parameters_[2], statistic_;
};

TEST(Model, TwoValuesOfOneNameAreRefused) {
  const auto make = [](const char* parameter, const char* other, const char* statistic) {
    LayerList<float> layers;
    layers.push_back(std::make_unique<Twins>(parameter, other, statistic));
    return Model<float>({2}, std::move(layers));
  };
  for (const auto& [other, statistic] : {std::pair{"gain", "mean"}, {"shift", "gain"}}) {
    try {
      make("gain", other, statistic);
      FAIL() << "two names are the same";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("layer 0 (twins, 2 gains) has two values named 'gain'"),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_NO_THROW(make("gain", "shift", "mean"));
}

TEST(Model, MovedFromModelRaises) {
  auto model = small_model<float>();
  const auto taken = std::move(model);
  // NOLINTBEGIN(bugprone-use-after-move): that is the test.
  EXPECT_THROW(model.parameters().host(), InvalidArgument);
  EXPECT_THROW(model.reducible().host(), InvalidArgument);
  EXPECT_THROW(model.initialize(1), InvalidArgument);
  EXPECT_THROW((void)model.describe(), InvalidArgument);
  EXPECT_THROW((void)model.parameter_layout(), InvalidArgument);
  EXPECT_THROW(model.forward({}, Tensor<float>(1, {6, 6, 2})), InvalidArgument);
  EXPECT_THROW(model.backward({}, Tensor<float>(1, {6, 6, 2}), Tensor<float>(1, {3})), InvalidArgument);
  EXPECT_THROW(model.move_statistics(), InvalidArgument);
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace farandole::trainer
