// SPDX-License-Identifier: Apache-2.0
// Layer, group and RMS normalisation: values against formulas written here, gradients against central differences.
#include "layer_harness.h"

namespace farandole::trainer {
namespace {

constexpr double kNormalizationEpsilon = 1e-3;
const Shape kNormalizedImage{3, 2, 12};

/// The normalised values of a sample, without scale and shift. Elements i and j belong to the same set if set_of(i) ==
/// set_of(j).
template <class SetOf>
std::vector<double> normalized(const std::vector<double>& sample, bool centred, const SetOf& set_of) {
  std::vector<double> result(sample.size());
  for (std::size_t i = 0; i < sample.size(); ++i) {
    double count = 0, mean = 0, variance = 0;
    for (std::size_t j = 0; j < sample.size(); ++j) {
      if (set_of(i) != set_of(j)) continue;
      count += 1;
      mean += centred ? sample[j] : 0;
    }
    mean /= count;
    for (std::size_t j = 0; j < sample.size(); ++j) {
      if (set_of(i) == set_of(j)) variance += (sample[j] - mean) * (sample[j] - mean) / count;
    }
    result[i] = (sample[i] - mean) / std::sqrt(variance + kNormalizationEpsilon);
  }
  return result;
}

template <class Scalar>
std::vector<double> sample_of(const Tensor<Scalar>& batch, std::int64_t sample) {
  const Scalar* first = batch.data() + sample * batch.sample_elements();
  return {first, first + batch.sample_elements()};
}

template <class Scalar, class SetOf>
void check_normalized(std::unique_ptr<Layer<Scalar>> layer, bool centred, const SetOf& set_of, double tolerance) {
  LayerHarness<Scalar> harness(std::move(layer), kNormalizedImage);
  ASSERT_EQ(harness.output_shape, kNormalizedImage);
  const Tensor<Scalar> input = normal_tensor<Scalar>(4, kNormalizedImage, 30, 3);
  const Tensor<Scalar>& output = harness.forward(input);
  for (std::int64_t sample = 0; sample < 4; ++sample) {
    const std::vector<double> expected = normalized(sample_of(input, sample), centred, set_of);
    const std::vector<double> got = sample_of(output, sample);
    for (std::size_t i = 0; i < got.size(); ++i) {
      double y = expected[i];
      if (!harness.parameters.empty()) y *= harness.parameters[0][i % 12];
      if (harness.parameters.size() > 1) y += harness.parameters[1][i % 12];
      ASSERT_NEAR(got[i], y, tolerance) << harness.layer().name() << ", element " << i;
    }
  }
}

template <class Scalar>
void check_all_normalized(double tolerance) {
  const auto row = [](std::size_t i) { return i / 12; };
  for (const bool affine : {true, false}) {
    const NormalizationOptions options{.epsilon = kNormalizationEpsilon, .affine = affine};
    check_normalized(layer_normalization<Scalar>(options), true, row, tolerance);
    check_normalized(rms_normalization<Scalar>(options), false, row, tolerance);
    for (const std::size_t groups : {1, 3, 12}) {
      check_normalized(
          group_normalization<Scalar>(static_cast<std::int64_t>(groups), options), true,
          [groups](std::size_t i) { return i % 12 / (12 / groups); }, tolerance);
    }
  }
}
TEST(SampleNormalization, ValuesEqualTheFormulas) {
  check_all_normalized<float>(1e-5);
  check_all_normalized<double>(1e-13);
}

template <class Scalar>
std::vector<LayerHarness<Scalar>> normalization_harnesses(const Shape& shape) {
  std::vector<LayerHarness<Scalar>> all;
  for (const bool affine : {true, false}) {
    const NormalizationOptions options{.epsilon = kNormalizationEpsilon, .affine = affine};
    all.emplace_back(layer_normalization<Scalar>(options), shape);
    all.emplace_back(rms_normalization<Scalar>(options), shape);
    all.emplace_back(group_normalization<Scalar>(2, options), shape);
  }
  return all;
}

TEST(SampleNormalization, GradientsMatchCentralDifferences) {
  for (const Shape& shape : {Shape{2, 3, 6}, Shape{38}}) {  // 38: more than two rounds of the sums' lanes
    for (auto& harness : normalization_harnesses<double>(shape))
      check_gradients(harness, normal_tensor<double>(3, shape, 31));
  }
}

TEST(SampleNormalization, FloatAgreesWithDouble) {
  const Shape shape{5, 7, 20};
  auto singles = normalization_harnesses<float>(shape);
  auto doubles = normalization_harnesses<double>(shape);
  const auto input = normal_tensor<float>(3, shape, 32), gradient = normal_tensor<float>(3, shape, 33);
  for (std::size_t k = 0; k < singles.size(); ++k) {
    singles[k].forward(input);
    doubles[k].forward(converted<double>(input));
    const auto& dx = singles[k].backward(input, gradient);
    const auto& dx2 = doubles[k].backward(converted<double>(input), converted<double>(gradient));
    EXPECT_LT(relative_error(dx.host(), dx2.host()), 1e-5) << singles[k].layer().name();
    for (std::size_t p = 0; p < singles[k].gradients.size(); ++p) {
      EXPECT_LT(relative_error(std::span<const float>(singles[k].gradients[p]),
                               std::span<const double>(doubles[k].gradients[p])),
                1e-5);
    }
  }
}

TEST(SampleNormalization, BitsDoNotDependOnThePlaceInTheBatch) {
  for (auto& harness : normalization_harnesses<float>({3, 3, 22})) {
    check_independence_of_split(harness, normal_tensor<float>(9, {3, 3, 22}, 34));
  }
}

TEST(SampleNormalization, LargeMeanDoesNotDrownTheVariance) {
  LayerHarness<double> harness(layer_normalization<double>({.epsilon = 1e-12, .affine = false}), {2});
  Tensor<double> input(1, {2});
  input.data()[0] = 1e9, input.data()[1] = 1e9 + 2;  // the mean of squares needs 60 bits
  const Tensor<double>& output = harness.forward(input);
  EXPECT_NEAR(output.data()[0], -1, 1e-9);
  EXPECT_NEAR(output.data()[1], 1, 1e-9);
}

TEST(SampleNormalization, ParametersStartAsIdentityAndDoNotDecay) {
  LayerHarness<float> centred(group_normalization<float>(3), kNormalizedImage),
      rms(rms_normalization<float>(), kNormalizedImage);
  const std::vector<ParameterSpec> specs = centred.layer().parameters();
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(specs[0].name, "scale");
  EXPECT_EQ(specs[0].initial, Initial::kOne);
  EXPECT_EQ(specs[1].name, "shift");
  EXPECT_EQ(specs[1].initial, Initial::kZero);
  for (const ParameterSpec& spec : specs) {
    EXPECT_EQ(spec.shape, Shape({12}));
    EXPECT_FALSE(spec.decays);
  }
  EXPECT_EQ(rms.layer().parameters().size(), 1U);
}

TEST(SampleNormalization, ImpossibleOptionsAndInputsAreRefused) {
  expect_invalid([] { layer_normalization<float>({.epsilon = 0}); }, {"layer_normalization", "positive", "0"});
  expect_invalid([] { group_normalization<float>(0); }, {"group_normalization", "at least 1", "0"});
  expect_invalid([] { group_normalization<float>(5)->prepare(kNormalizedImage); },
                 {"group_normalization, 5 groups", "multiple of 5", "3x2x12"});
  expect_invalid([] { rms_normalization<float>()->prepare({}); }, {"rms_normalization", "channels", "scalar"});
}

}  // namespace
}  // namespace farandole::trainer
