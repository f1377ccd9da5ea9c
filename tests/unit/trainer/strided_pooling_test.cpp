// SPDX-License-Identifier: Apache-2.0
// Pooling with stride and padding, upsampling, and the options of dense and conv2d.
#include <limits>

#include "layer_harness.h"

namespace farandole::trainer {
namespace {

Tensor<double> counting(const Shape& shape) {
  Tensor<double> tensor(1, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] = static_cast<double>(i + 1);
  return tensor;
}

std::vector<double> values_of(const Tensor<double>& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

TEST(StridedPooling, WindowsAreCutAtTheEdges) {
  // 1 2 3     windows of 2x2 with padding 1 and stride 2: {1}, {2 3}, {4 7}, {5 6 8 9}
  // 4 5 6
  // 7 8 9
  const Tensor<double> image = counting({3, 3, 1});
  const Pool2dOptions options{.size = 2, .stride = 2, .padding = 1};
  LayerHarness<double> largest(max_pool2d<double>(options), {3, 3, 1}),
      mean(average_pool2d<double>(options), {3, 3, 1});
  EXPECT_EQ(largest.output_shape, Shape({2, 2, 1}));
  EXPECT_EQ(values_of(largest.forward(image)), (std::vector<double>{1, 3, 7, 9}));
  EXPECT_EQ(values_of(mean.forward(image)), (std::vector<double>{1, 2.5, 5.5, 7}));
  Tensor<double> negative = counting({3, 3, 1});
  for (double& value : negative.host()) value = -value;
  EXPECT_EQ(values_of(largest.forward(negative)), (std::vector<double>{-1, -2, -4, -5})) << "padding is no zero";
}

TEST(StridedPooling, GradientsMatchCentralDifferences) {
  for (const Pool2dOptions& options : {Pool2dOptions{.size = 3, .stride = 2, .padding = 1},
                                       {.size = 3, .stride = 1},
                                       {.size = 2, .stride = 3, .padding = 1}}) {
    for (const Shape& image : {Shape{5, 7, 2}, Shape{4, 4, 17}}) {
      LayerHarness<double> largest(max_pool2d<double>(options), image), mean(average_pool2d<double>(options), image);
      check_gradients(largest, normal_tensor<double>(2, image, 20));
      check_gradients(mean, normal_tensor<double>(2, image, 21));
      check_independence_of_split(largest, normal_tensor<double>(5, image, 22));
      check_independence_of_split(mean, normal_tensor<double>(5, image, 23));
    }
  }
}

TEST(StridedPooling, TiesGoToTheFirstAndOverlapsAddUp) {
  LayerHarness<double> harness(max_pool2d<double>({.size = 2, .stride = 1}), {2, 3, 1});
  Tensor<double> image(1, {2, 3, 1}), gradient(1, {1, 2, 1});
  std::fill_n(image.data(), 6, 4.0);
  image.data()[1] = 5;  // in both windows
  gradient.data()[0] = 10, gradient.data()[1] = 20;
  harness.forward(image);
  EXPECT_EQ(values_of(harness.backward(image, gradient)), (std::vector<double>{0, 30, 0, 0, 0, 0}));
  image.data()[1] = 4;
  harness.forward(image);
  EXPECT_EQ(values_of(harness.backward(image, gradient)), (std::vector<double>{10, 20, 0, 0, 0, 0}));
  image.data()[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(harness.forward(image).data()[1]));
}

TEST(StridedPooling, PlainWindowsAreThoseOfTheOtherForm) {
  EXPECT_EQ(max_pool2d<float>(Pool2dOptions{.size = 3})->name(), max_pool2d<float>(3)->name());
  EXPECT_EQ(average_pool2d<float>({.size = 2, .stride = 2})->name(), average_pool2d<float>(2)->name());
  EXPECT_EQ(max_pool2d<float>({.size = 3, .stride = 2, .padding = 1})->name(), "max_pool2d 3x3, stride 2, padding 1");
}

TEST(StridedPooling, ImpossibleWindowsAreRefused) {
  expect_invalid([] { max_pool2d<float>({.size = 2, .padding = 2}); },
                 {"max_pool2d", "less than the size", "2, 0 and 2"});
  expect_invalid([] { average_pool2d<float>({.size = 2, .stride = -1}); }, {"average_pool2d", "2, -1 and 0"});
  expect_invalid(
      [] {
        max_pool2d<float>({.size = 5, .stride = 1, .padding = 1})->prepare({2, 9, 1});
      },
      {"at least 5x5", "the input is 2x9x1"});
  expect_invalid([] { max_pool2d<float>({.size = 2, .stride = 1})->prepare({4}); }, {"the input is 4"});
}

TEST(Upsampling, RepeatsPixels) {
  LayerHarness<double> harness(upsample2d<double>(2), {2, 1, 2});
  EXPECT_EQ(harness.output_shape, Shape({4, 2, 2}));
  EXPECT_EQ(values_of(harness.forward(counting({2, 1, 2}))),
            (std::vector<double>{1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4}));
  for (const std::int64_t factor : {1, 2, 3}) {
    LayerHarness<double> each(upsample2d<double>(factor), {3, 2, 2});
    check_gradients(each, normal_tensor<double>(2, {3, 2, 2}, 24));
    check_independence_of_split(each, normal_tensor<double>(5, {3, 2, 2}, 25));
  }
  expect_invalid([] { upsample2d<float>(0); }, {"upsample2d", "got 0"});
  expect_invalid([] { upsample2d<float>(2)->prepare({4, 4}); }, {"upsample2d 2x2", "the input is 4x4"});
}

TEST(DenseOptions, PerPositionEveryRowIsAnInput) {
  LayerHarness<double> rows(dense<double>(3, {.per_position = true}), {4, 5});
  EXPECT_EQ(rows.output_shape, Shape({4, 3}));
  check_gradients(rows, normal_tensor<double>(2, {4, 5}, 26));
  LayerHarness<double> image(dense<double>(2, {.per_position = true, .bias = false}), {2, 3, 4});
  EXPECT_EQ(image.output_shape, Shape({2, 3, 2}));
  EXPECT_EQ(image.parameters.size(), 1U);
  EXPECT_DOUBLE_EQ(image.layer().flops(), 2.0 * 6 * 4 * 2);
  check_gradients(image, normal_tensor<double>(2, {2, 3, 4}, 27));
  EXPECT_EQ(image.layer().name(), "dense, 2 units per position, no bias");
}

TEST(DenseOptions, RowsGiveWhatSamplesGive) {
  LayerHarness<float> rows(dense<float>(3, {.per_position = true}), {4, 5}), samples(dense<float>(3), {5});
  for (std::size_t p = 0; p < 2; ++p) {
    std::copy(samples.parameters[p].begin(), samples.parameters[p].end(), rows.parameters[p].begin());
  }
  const auto input = normal_tensor<float>(2, {4, 5}, 28);
  Tensor<float> same(8, {5});
  std::copy(input.host().begin(), input.host().end(), same.data());
  const auto &y = rows.forward(input), &z = samples.forward(same);
  EXPECT_TRUE(std::equal(y.host().begin(), y.host().end(), z.data()));
}

TEST(Conv2dOptions, WithoutBiasItIsTheConvolutionOfBiasZero) {
  const Shape image{6, 5, 16};
  LayerHarness<double> check(conv2d<double>({.channels = 3, .padding = 1, .bias = false}), {4, 4, 2});
  EXPECT_EQ(check.parameters.size(), 1U);
  check_gradients(check, normal_tensor<double>(2, {4, 4, 2}, 29));
  for (const ConvolutionLibrary library : {ConvolutionLibrary::kAutomatic, ConvolutionLibrary::kEigen}) {
    LayerHarness<float> without(conv2d<float>({.channels = 16, .library = library, .bias = false}), image);
    LayerHarness<float> with(conv2d<float>({.channels = 16, .library = library}), image);
    std::copy(with.parameters[0].begin(), with.parameters[0].end(), without.parameters[0].begin());
    std::fill(with.parameters[1].begin(), with.parameters[1].end(), 0.0F);
    const auto input = normal_tensor<float>(3, image, 30);
    const auto &y = without.forward(input), &z = with.forward(input);
    EXPECT_TRUE(std::equal(y.host().begin(), y.host().end(), z.data()));
    const auto gradient = normal_tensor<float>(3, without.output_shape, 31);
    const auto &dy = without.backward(input, gradient), &dz = with.backward(input, gradient);
    EXPECT_TRUE(std::equal(dy.host().begin(), dy.host().end(), dz.data()));
    EXPECT_EQ(without.gradients[0], with.gradients[0]);
  }
  EXPECT_EQ(check.layer().name(), "conv2d 3x3, 3 channels, no bias");
  EXPECT_DOUBLE_EQ(check.layer().flops(), 2.0 * 16 * 9 * 2 * 3);
}

}  // namespace
}  // namespace farandole::trainer
