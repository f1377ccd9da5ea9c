// SPDX-License-Identifier: Apache-2.0
// Compares every layer's gradients with central differences, in double. Checks pooling, relu and dense by hand-made
// values.
#include <limits>

#include "farandole/core/error.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

TEST(LayersGradient, Dense) {
  LayerHarness<double> harness(dense<double>(5), {7});
  EXPECT_EQ(harness.output_shape, Shape({5}));
  check_gradients(harness, normal_tensor<double>(4, {7}, 1));
}

TEST(LayersGradient, DenseOnImages) {
  LayerHarness<double> harness(dense<double>(3), {4, 3, 2});
  check_gradients(harness, normal_tensor<double>(3, {4, 3, 2}, 2));
}

TEST(LayersGradient, DenseInFloatAgreesWithDouble) {
  for (const std::int64_t units : {1, 10, 128}) {
    LayerHarness<float> single(dense<float>(units), {6, 6, 8});
    LayerHarness<double> twice(dense<double>(units), {6, 6, 8});
    for (std::size_t p = 0; p < 2; ++p) {
      std::copy(single.parameters[p].begin(), single.parameters[p].end(), twice.parameters[p].begin());
    }
    const auto input = normal_tensor<float>(13, {6, 6, 8}, 3);
    const auto gradient = normal_tensor<float>(13, {units}, 4);
    const auto &y = single.forward(input), &dx = single.backward(input, gradient);
    const auto &y2 = twice.forward(converted<double>(input)),
               &dx2 = twice.backward(converted<double>(input), converted<double>(gradient));
    EXPECT_LT(relative_error(y.host(), y2.host()), 1e-5);
    EXPECT_LT(relative_error(dx.host(), dx2.host()), 1e-5);
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_LT(
          relative_error(std::span<const float>(single.gradients[p]), std::span<const double>(twice.gradients[p])),
          1e-5);
    }
  }
}

TEST(LayersGradient, Conv2d) {
  struct Case {
    Shape input;
    Conv2dOptions options;
    Shape output;
  };
  const Case cases[] = {{{6, 5, 2}, {.channels = 3, .kernel = 3}, {4, 3, 3}},
                        {{6, 5, 2}, {.channels = 3, .kernel = 3, .padding = 1}, {6, 5, 3}},
                        {{7, 8, 1}, {.channels = 2, .kernel = 3, .stride = 2, .padding = 1}, {4, 4, 2}},
                        {{5, 5, 3}, {.channels = 2, .kernel = 1, .stride = 3}, {2, 2, 2}},
                        {{4, 4, 1}, {.channels = 2, .kernel = 5, .stride = 2, .padding = 2}, {2, 2, 2}},
                        {{2, 2, 1}, {.channels = 1, .kernel = 1, .padding = 2}, {6, 6, 1}}};
  for (const Case& c : cases) {
    LayerHarness<double> harness(conv2d<double>(c.options), c.input);
    EXPECT_EQ(harness.output_shape, c.output);
    check_gradients(harness, normal_tensor<double>(2, c.input, 5));
  }
}

TEST(LayersGradient, MaxPool) {
  for (const Shape& input : {Shape{4, 6, 3}, Shape{5, 7, 2}}) {  // the second leaves an edge
    LayerHarness<double> harness(max_pool2d<double>(2), input);
    check_gradients(harness, normal_tensor<double>(2, input, 6));
  }
  LayerHarness<double> harness(max_pool2d<double>(3), {7, 6, 17});
  check_gradients(harness, normal_tensor<double>(2, {7, 6, 17}, 6));
}

TEST(LayersGradient, AveragePool) {
  for (const Shape& input : {Shape{4, 6, 3}, Shape{5, 7, 2}}) {
    LayerHarness<double> harness(average_pool2d<double>(2), input);
    check_gradients(harness, normal_tensor<double>(2, input, 7));
  }
}

template <class Scalar>
void check_pool_ties() {
  LayerHarness<Scalar> harness(max_pool2d<Scalar>(2), {2, 4, 2});
  Tensor<Scalar> input(1, {2, 4, 2}), gradient(1, {1, 2, 2});
  //                       x0      x1      x2      x3   of channels 0 and 1
  const Scalar pixels[] = {1, 0, 1, 5, 2, -1, 2, -2,   // row 0
                           1, 5, 0, 5, 3, -1, 3, -1};  // row 1
  std::copy(std::begin(pixels), std::end(pixels), input.data());
  const Scalar gradients[] = {10, 20, 30, 40};
  std::copy(std::begin(gradients), std::end(gradients), gradient.data());
  const Tensor<Scalar>& output = harness.forward(input);
  EXPECT_EQ(std::vector<Scalar>(output.host().begin(), output.host().end()), (std::vector<Scalar>{1, 5, 3, -1}));
  const Tensor<Scalar>& by_input = harness.backward(input, gradient);
  EXPECT_EQ(std::vector<Scalar>(by_input.host().begin(), by_input.host().end()),
            (std::vector<Scalar>{10, 0, 0, 20, 0, 40, 0, 0,  //
                                 0, 0, 0, 0, 30, 0, 0, 0}));
}
TEST(LayersGradient, MaxPoolTiesGoToTheFirstInRowOrder) {
  check_pool_ties<float>();
  check_pool_ties<double>();
}

TEST(LayersGradient, Relu) {
  LayerHarness<double> harness(relu<double>(), {3, 3, 5});
  Tensor<double> input = normal_tensor<double>(3, {3, 3, 5}, 8);
  for (double& value : input.host()) value += value < 0 ? -0.1 : 0.1;  // away from the kink
  check_gradients(harness, std::move(input));
}

TEST(LayersGradient, BatchNormalization) {
  LayerHarness<double> harness(batch_normalization<double>(), {3, 2, 5});
  check_gradients(harness, normal_tensor<double>(4, {3, 2, 5}, 9));
  LayerHarness<double> vectors(batch_normalization<double>(), {6});
  check_gradients(vectors, normal_tensor<double>(5, {6}, 9));
}

TEST(LayersGradient, BatchNormalizationInEvaluation) {
  LayerHarness<double> harness(batch_normalization<double>(), {2, 2, 3});
  harness.pass.training = false;
  harness.moving = {{0.5, -1, 2}, {0.25, 1, 4}};
  check_gradients(harness, normal_tensor<double>(2, {2, 2, 3}, 10));
}

TEST(LayersGradient, Dropout) {
  LayerHarness<double> harness(dropout<double>(0.4), {30});
  check_gradients(harness, normal_tensor<double>(4, {30}, 11));
}

TEST(LayersGradient, NoSamplesGiveZeroGradients) {
  const Shape image{8, 8, 16};
  std::vector<LayerHarness<float>> harnesses;
  harnesses.emplace_back(dense<float>(3), image);
  harnesses.emplace_back(conv2d<float>({.channels = 16}), image);
  harnesses.emplace_back(conv2d<float>({.channels = 4, .library = ConvolutionLibrary::kEigen}), image);
  harnesses.emplace_back(max_pool2d<float>(2), image);
  harnesses.emplace_back(average_pool2d<float>(2), image);
  harnesses.emplace_back(relu<float>(), image);
  harnesses.emplace_back(dropout<float>(0.5), image);
  harnesses.emplace_back(batch_normalization<float>(), image);
  harnesses.emplace_back(gelu<float>(), image);
  harnesses.emplace_back(layer_normalization<float>(), image);
  harnesses.emplace_back(group_normalization<float>(4), image);
  harnesses.emplace_back(rms_normalization<float>(), image);
  harnesses.emplace_back(global_average_pool<float>(), image);
  harnesses.emplace_back(reshape<float>({64, 16}), image);
  harnesses.emplace_back(depthwise_conv2d<float>({}), image);
  harnesses.emplace_back(embedding<float>(5, 3), image);
  harnesses.emplace_back(positional_encoding<float>(PositionalEncoding::kLearned), Shape{8, 16});
  harnesses.emplace_back(attention<float>({.heads = 2}), Shape{8, 16});
  for (LayerHarness<float>& harness : harnesses) {
    const Tensor<float> input(0, image), gradient(0, harness.output_shape);
    EXPECT_EQ(harness.forward(input).size(), 0);
    EXPECT_EQ(harness.backward(input, gradient).size(), 0);
    for (const auto& values : harness.gradients) {
      EXPECT_EQ(values, std::vector<float>(values.size(), 0.0F)) << harness.layer().name();
    }
  }
}

TEST(LayersGradient, NotANumberIsNotHidden) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t place : {0, 3}) {
    Tensor<float> input = normal_tensor<float>(1, {2, 2, 1}, 12);
    input.data()[place] = kNan;
    LayerHarness<float> rectifier(relu<float>(), {2, 2, 1}), pool(max_pool2d<float>(2), {2, 2, 1});
    EXPECT_TRUE(std::isnan(rectifier.forward(input).data()[place]));
    EXPECT_TRUE(std::isnan(pool.forward(input).data()[0]));
  }
}

TEST(LayersGradient, ImpossibleOptionsAreRefused) {
  EXPECT_THROW(dense<float>(0), InvalidArgument);
  EXPECT_THROW(conv2d<float>({.channels = 0}), InvalidArgument);
  EXPECT_THROW(conv2d<float>({.stride = 0}), InvalidArgument);
  EXPECT_THROW(conv2d<double>({.library = ConvolutionLibrary::kOneDnn}), Unsupported);
  EXPECT_THROW(max_pool2d<float>(0), InvalidArgument);
  EXPECT_THROW(dropout<float>(1), InvalidArgument);
  EXPECT_THROW(dropout<float>(-0.1), InvalidArgument);
  EXPECT_THROW(batch_normalization<float>({.epsilon = 0}), InvalidArgument);
  EXPECT_THROW(conv2d<float>({.kernel = 5})->prepare({4, 4, 1}), InvalidArgument);
  EXPECT_THROW(conv2d<float>({})->prepare({16}), InvalidArgument);
  EXPECT_THROW(max_pool2d<float>(3)->prepare({2, 3, 1}), InvalidArgument);
}

}  // namespace
}  // namespace farandole::trainer
