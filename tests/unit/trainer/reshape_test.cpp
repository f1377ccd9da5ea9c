// SPDX-License-Identifier: Apache-2.0
// Global average pooling, flatten and reshape.
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
void check_means(const Shape& shape, std::int64_t channels, double tolerance) {
  LayerHarness<Scalar> harness(global_average_pool<Scalar>(), shape);
  ASSERT_EQ(harness.output_shape, Shape({channels}));
  const Tensor<Scalar> input = normal_tensor<Scalar>(3, shape, 50);
  const Tensor<Scalar>& output = harness.forward(input);
  const std::int64_t positions = input.sample_elements() / channels;
  for (std::int64_t i = 0; i < output.size(); ++i) {
    double mean = 0;
    for (std::int64_t position = 0; position < positions; ++position) {
      mean += input.data()[(i / channels * positions + position) * channels + i % channels] /
              static_cast<double>(positions);
    }
    EXPECT_NEAR(output.data()[i], mean, tolerance);
  }
}
TEST(GlobalAveragePool, IsTheMeanOverPositions) {
  check_means<float>({5, 3, 7}, 7, 1e-6);
  check_means<double>({5, 3, 7}, 7, 1e-14);
  check_means<double>({4, 2}, 2, 1e-14);
}

TEST(GlobalAveragePool, GradientsMatchCentralDifferences) {
  LayerHarness<double> harness(global_average_pool<double>(), {3, 4, 5});
  check_gradients(harness, normal_tensor<double>(2, {3, 4, 5}, 51));
}

TEST(GlobalAveragePool, BitsDoNotDependOnThePlaceInTheBatch) {
  LayerHarness<float> harness(global_average_pool<float>(), {3, 3, 5});
  check_independence_of_split(harness, normal_tensor<float>(7, {3, 3, 5}, 52));
}

TEST(GlobalAveragePool, VectorsAreRefused) {
  expect_invalid([] { global_average_pool<float>()->prepare({16}); },
                 {"global_average_pool", "{length, channels}", "16"});
}

TEST(Reshape, CopiesInOrder) {
  std::vector<LayerHarness<float>> harnesses;
  harnesses.emplace_back(flatten<float>(), Shape{2, 3, 4});
  harnesses.emplace_back(reshape<float>({6, 4}), Shape{2, 3, 4});
  EXPECT_EQ(harnesses[0].output_shape, Shape({24}));
  EXPECT_EQ(harnesses[1].output_shape, Shape({6, 4}));
  const Tensor<float> input = normal_tensor<float>(3, {2, 3, 4}, 53);
  for (auto& harness : harnesses) {
    const Tensor<float>& output = harness.forward(input);
    EXPECT_TRUE(std::equal(output.host().begin(), output.host().end(), input.data()));
    const Tensor<float> gradient = normal_tensor<float>(3, harness.output_shape, 54);
    const Tensor<float>& by_input = harness.backward(input, gradient);
    EXPECT_EQ(by_input.shape(), input.shape());
    EXPECT_TRUE(std::equal(by_input.host().begin(), by_input.host().end(), gradient.data()));
  }
}

TEST(Reshape, OtherNumbersOfElementsAreRefused) {
  expect_invalid([] { reshape<float>({5, 4})->prepare({2, 3, 4}); }, {"reshape 5x4", "20 elements", "2x3x4", "24"});
  expect_invalid([] { reshape<float>({-2, -12}); }, {"reshape", "at least 1", "-2x-12"});
}

}  // namespace
}  // namespace farandole::trainer
