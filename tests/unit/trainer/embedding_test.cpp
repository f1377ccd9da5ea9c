// SPDX-License-Identifier: Apache-2.0
// Embedding and positional encoding.
#include "farandole/trainer/model.h"
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
Tensor<Scalar> indices(std::int64_t samples, const Shape& shape, std::int64_t vocabulary) {
  Tensor<Scalar> tensor(samples, shape);
  const CounterRandom random(kTestSeed, 70);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.data()[i] =
        static_cast<Scalar>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocabulary)));
  }
  return tensor;
}

TEST(Embedding, LooksUpRows) {
  LayerHarness<float> harness(embedding<float>(5, 3), {2, 4});
  EXPECT_EQ(harness.output_shape, Shape({2, 4, 3}));
  const Tensor<float> input = indices<float>(3, {2, 4}, 5);
  const Tensor<float>& output = harness.forward(input);
  for (std::int64_t i = 0; i < output.size(); ++i) {
    const auto row = static_cast<std::size_t>(input.data()[i / 3]);
    EXPECT_EQ(output.data()[i], harness.parameters[0][row * 3 + static_cast<std::size_t>(i % 3)]);
  }
}

TEST(Embedding, GradientsMatchCentralDifferences) {
  LayerHarness<double> harness(embedding<double>(7, 4), {6});  // 18 lookups: rows repeat
  const Tensor<double> input = indices<double>(3, {6}, 7);
  check_gradients(harness, converted<double>(input), 1e-6, false);
  for (const double value : harness.backward(input, normal_tensor<double>(3, {6, 4}, 71)).host()) EXPECT_EQ(value, 0);
}

TEST(Embedding, BitsDoNotDependOnThePlaceInTheBatch) {
  LayerHarness<float> harness(embedding<float>(9, 5), {3});
  check_independence_of_split(harness, indices<float>(8, {3}, 9));
}

TEST(Embedding, IndicesOutOfRangeNameTheSample) {
  LayerHarness<double> harness(embedding<double>(5, 2), {3});
  harness.pass.first_sample = 100;
  for (const auto& [value, text] :
       {std::pair{5.0, "is 5,"}, {-1.0, "is -1,"}, {1.5, "is 1.5,"}, {NAN, "is nan,"}, {1e300, "is 1e+300,"}}) {
    Tensor<double> input = indices<double>(4, {3}, 5);
    input.data()[7] = value;
    try {
      harness.forward(input);
      ADD_FAILURE() << value << " was accepted";
    } catch (const DataError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("element 1 of sample 102 of the batch"), std::string::npos) << message;
      EXPECT_NE(message.find(text), std::string::npos) << message;
      EXPECT_NE(message.find("[0, 5)"), std::string::npos) << message;
    }
  }
}

template <class Scalar>
void check_initial_values() {
  LayerList<Scalar> layers;
  layers.push_back(embedding<Scalar>(200, 50));
  layers.push_back(positional_encoding<Scalar>(PositionalEncoding::kLearned));
  Model<Scalar> model({100}, std::move(layers));
  model.initialize(3);
  const double deviations[] = {1, 1 / std::sqrt(50)};
  for (std::size_t k = 0; k < 2; ++k) {
    const NamedSpan& span = model.parameter_layout()[k];
    double sum = 0, squares = 0;
    for (std::size_t i = span.first; i < span.first + span.count; ++i) {
      sum += static_cast<double>(model.parameters().host()[i]);
      squares += static_cast<double>(model.parameters().host()[i]) * static_cast<double>(model.parameters().host()[i]);
    }
    const auto count = static_cast<double>(span.count);
    EXPECT_NEAR(sum / count, 0, 5 * deviations[k] / std::sqrt(count)) << span.name;
    EXPECT_NEAR(std::sqrt(squares / count), deviations[k], 5 * deviations[k] / std::sqrt(2 * count)) << span.name;
  }
  const std::vector<Scalar> first(model.parameters().host().begin(), model.parameters().host().end());
  model.initialize(3);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), model.parameters().host().begin()));
  model.initialize(4);
  EXPECT_FALSE(std::equal(first.begin(), first.end(), model.parameters().host().begin()));
}
TEST(Embedding, StartsNormallyDistributed) {
  check_initial_values<float>();
  check_initial_values<double>();
}

TEST(Embedding, ImpossibleOptionsAreRefused) {
  expect_invalid([] { embedding<float>(0, 3); }, {"embedding", "at least 1", "0 and 3"});
  expect_invalid([] { embedding<float>(3, 0); }, {"embedding", "at least 1", "3 and 0"});
  expect_invalid([] { embedding<float>((1 << 24) + 1, 1); }, {"16777217", "at most 16777216"});
  expect_invalid([] { embedding<float>(3, 2)->prepare({0}); }, {"embedding", "is empty", "0"});
}

TEST(PositionalEncoding, SinusoidalEqualsTheFormula) {
  for (const std::int64_t units : {6, 5}) {
    LayerHarness<double> harness(positional_encoding<double>(PositionalEncoding::kSinusoidal), {4, units});
    EXPECT_TRUE(harness.parameters.empty());
    const Tensor<double> input = normal_tensor<double>(2, {4, units}, 72);
    const Tensor<double>& output = harness.forward(input);
    for (std::int64_t i = 0; i < output.size(); ++i) {
      const std::int64_t position = i / units % 4, pair = i % units / 2;
      const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(units);
      const double angle = static_cast<double>(position) * std::exp(-std::log(10000.0) * exponent);
      const double code = i % units % 2 == 0 ? std::sin(angle) : std::cos(angle);
      EXPECT_NEAR(output.data()[i], input.data()[i] + code, 1e-14) << i;
    }
    check_gradients(harness, normal_tensor<double>(2, {4, units}, 73));
  }
}

TEST(PositionalEncoding, LearnedAddsTheParameter) {
  LayerHarness<double> harness(positional_encoding<double>(PositionalEncoding::kLearned), {4, 3});
  const Tensor<double> input = normal_tensor<double>(3, {4, 3}, 74);
  const Tensor<double>& output = harness.forward(input);
  for (std::int64_t i = 0; i < output.size(); ++i) {
    EXPECT_EQ(output.data()[i], input.data()[i] + harness.parameters[0][static_cast<std::size_t>(i % 12)]);
  }
  check_gradients(harness, converted<double>(input));
}

TEST(PositionalEncoding, ImagesAreRefused) {
  expect_invalid(
      [] {
        positional_encoding<float>(PositionalEncoding::kLearned)->prepare({4, 4, 3});
      },
      {"positional_encoding, learned", "{length, units}", "4x4x3"});
}

}  // namespace
}  // namespace farandole::trainer
