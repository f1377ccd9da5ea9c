// SPDX-License-Identifier: Apache-2.0
// Models by name: published numbers of parameters and operations, and gradients.
#include "farandole/trainer/models.h"

#include <numeric>

#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
Model<Scalar> make(const std::string& name, const ModelOptions& options) {
  return Model<Scalar>(options.input, layers_of<Scalar>(name, options));
}

TEST(Models, ResNetsHaveThePublishedSizes) {
  const ModelOptions imagenet{.input = {224, 224, 3}, .classes = 1000};
  Model<float> small = make<float>("resnet18", imagenet);
  EXPECT_EQ(small.parameters().size(), 11'689'512U);
  EXPECT_EQ(small.statistics().size(), 9'600U);  // mean and variance of 4,800 channels
  EXPECT_EQ(small.output_shape(), Shape({1000}));
  EXPECT_DOUBLE_EQ(small.flops(), 2 * 1'814'073'344.0);  // torchvision's: 1.814 G multiply-adds
  Model<float> large = make<float>("resnet50", imagenet);
  EXPECT_EQ(large.parameters().size(), 25'557'032U);
  EXPECT_DOUBLE_EQ(large.flops(), 2 * 4'089'184'256.0);
  const std::string table = large.describe();
  EXPECT_NE(table.find("25,557,032  8.18 G"), std::string::npos) << table;
  EXPECT_NE(table.find("7x7x2048"), std::string::npos) << table;
}

TEST(Models, SmallImagesKeepTheirSizeInTheStem) {
  const std::string cifar = make<float>("resnet18", {.input = {32, 32, 3}}).describe();
  EXPECT_NE(cifar.find("0 conv2d 3x3, 64 channels, no bias"), std::string::npos) << cifar;
  EXPECT_EQ(cifar.find("max_pool2d"), std::string::npos) << cifar;
  EXPECT_NE(cifar.find("4x4x512"), std::string::npos) << cifar;
  const std::string large = make<float>("resnet18", {.input = {96, 65, 3}}).describe();
  EXPECT_NE(large.find("0 conv2d 7x7, 64 channels, no bias"), std::string::npos) << large;
  EXPECT_NE(large.find("max_pool2d 3x3, stride 2, padding 1"), std::string::npos) << large;
  EXPECT_NE(large.find("3x3x512"), std::string::npos) << large;
}

TEST(Models, GptHasTheParametersOfItsFormula) {
  const ModelOptions options{.input = {32}, .vocabulary = 65, .blocks = 3, .units = 48, .heads = 6};
  Model<float> gpt = make<float>("gpt", options);
  const std::size_t units = 48;
  const std::size_t block =
      2 * 2 * units + 3 * units * (units + 1) + units * (units + 1) + 4 * units * (units + 1) + units * (4 * units + 1);
  EXPECT_EQ(gpt.parameters().size(), 65 * units + 32 * units + 3 * block + 2 * units + 65 * (units + 1));
  EXPECT_EQ(gpt.output_shape(), Shape({32, 65}));
  EXPECT_EQ(gpt.parameter_layout()[2].name, "2.residual.body.0.layer_normalization.scale");
}

TEST(Models, GptPredictsFromEarlierPositionsOnly) {
  Model<double> gpt = make<double>("gpt", {.input = {6}, .vocabulary = 7, .blocks = 2, .units = 8, .heads = 2});
  gpt.initialize(3);
  Tensor<double> text(1, {6});
  std::iota(text.data(), text.data() + 6, 0.0);
  const auto outputs = [&] {
    const auto values = gpt.forward({}, text).host();
    return std::vector<double>(values.begin(), values.end());
  };
  const std::vector<double> before = outputs();
  text.data()[3] = 6;
  const std::vector<double> after = outputs();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i < 3 * 7) << i;
}

/// A batch for a model: images, or texts.
Tensor<double> batch_of(const ModelOptions& options, std::int64_t samples) {
  Tensor<double> batch = normal_tensor<double>(samples, options.input, 90);
  if (options.input.size() > 1) return batch;
  const CounterRandom random(kTestSeed, 91);
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    batch.data()[i] = static_cast<double>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(options.vocabulary)));
  }
  return batch;
}

/// Compares derivatives of sum(coefficients * outputs) along random directions with central differences. Each direction
/// changes every fourth parameter tensor.
void check_directions(const std::string& name, const ModelOptions& options) {
  SCOPED_TRACE(name);
  constexpr double kChange = 1e-5;  // of the objective, to first order
  const Pass pass{.training = true, .seed = 3};
  Model<double> model = make<double>(name, options);
  model.initialize(kTestSeed);
  const Tensor<double> input = batch_of(options, 4);
  const Tensor<double> coefficients = normal_tensor<double>(4, model.output_shape(), 92);
  const auto objective = [&] {
    const Tensor<double>& output = model.forward(pass, input);
    return std::inner_product(output.data(), output.data() + output.size(), coefficients.data(), 0.0);
  };
  objective();
  model.backward(pass, input, coefficients);
  const std::vector<double> gradients(model.gradients().host().begin(), model.gradients().host().end());
  const std::vector<double> parameters(model.parameters().host().begin(), model.parameters().host().end());
  for (std::size_t group = 0; group < 4; ++group) {
    std::vector<double> direction(parameters.size());
    double expected = 0;
    for (std::size_t k = group; k < model.parameter_layout().size(); k += 4) {
      const NamedSpan& span = model.parameter_layout()[k];
      const std::span<double> part = std::span(direction).subspan(span.first, span.count);
      // Directions of the same length in every tensor, partly along the gradient.
      const std::span<const double> gradient = std::span(gradients).subspan(span.first, span.count);
      const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 1e-30));
      fill_normal(part, 100 + k, 1 / std::sqrt(static_cast<double>(span.count)));
      for (std::size_t i = 0; i < part.size(); ++i) part[i] += gradient[i] / norm;
      expected += std::inner_product(part.begin(), part.end(), gradient.begin(), 0.0);
    }
    const auto moved = [&](double by) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        model.parameters().host()[i] = parameters[i] + by * direction[i];
      return objective();
    };
    const double step = kChange / std::abs(expected);
    const double found = (moved(step) - moved(-step)) / (2 * step);
    EXPECT_NEAR(found, expected, 1e-5 * std::abs(expected)) << "group " << group << ", seed " << kTestSeed;
  }
}

TEST(Models, GradientsMatchCentralDifferences) {
  check_directions("mlp", {.input = {9, 9, 1}});
  check_directions("cnn", {.input = {9, 9, 1}});
  check_directions("cnn_bn", {.input = {9, 9, 1}});
  check_directions("resnet18", {.input = {8, 8, 3}});
  check_directions("resnet50", {.input = {8, 8, 3}});
  check_directions("gpt", {.input = {7}, .vocabulary = 11, .blocks = 2, .units = 12, .heads = 3, .dropout = 0.1});
}

TEST(Models, UnknownNamesAndInputsAreRefused) {
  expect_invalid([] { layers_of<float>("resnet"); }, {"'resnet'", "mlp, cnn, cnn_bn, resnet18, resnet50, gpt"});
  expect_invalid([] { layers_of<float>("resnet50", {.input = {784}}); }, {"resnet50", "the input is 784"});
}

}  // namespace
}  // namespace farandole::trainer
