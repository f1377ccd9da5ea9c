// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "farandole/core/error.h"
#include "farandole/trainer/stream.h"
#include "message_of.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using testing::HasSubstr;

constexpr std::int64_t kSide = 8, kChannels = 2, kPixels = kSide * kSide;
constexpr TrainingDraw kDraw{.seed = 7, .epoch = 3};

/// Images whose pixel (y, x, c) is 1 + 100 c + 8 y + x, so that a test sees where a pixel was; each has its own class.
std::shared_ptr<const Dataset> images(std::int64_t count, bool has_classes = true) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count * kPixels; ++i) {
    for (std::int64_t c = 0; c < kChannels; ++c) values.push_back(static_cast<float>(1 + 100 * c + i % kPixels));
  }
  Samples samples{.shape = {kSide, kSide, kChannels}, .inputs = std::move(values)};
  if (has_classes) {
    samples.labels.resize(static_cast<std::size_t>(count));
    std::iota(samples.labels.begin(), samples.labels.end(), 0);
    samples.classes = static_cast<std::int32_t>(count);
  }
  return memory_dataset(std::move(samples));
}

std::vector<std::uint32_t> all_of(const Dataset& data) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

template <class Scalar = float>
Batch<Scalar> gathered(const Dataset& data, const TrainingDraw& draw = kDraw) {
  Batch<Scalar> batch;
  data.gather_for_training(all_of(data), draw, batch);
  return batch;
}

template <class Values>
std::vector<double> numbers(const Values& tensor) {
  return {tensor.host().begin(), tensor.host().end()};
}

/// Mean and variance of numbers.
struct Moments {
  explicit Moments(const std::vector<double>& of) {
    for (const double x : of) mean += x / static_cast<double>(of.size());
    for (const double x : of) variance += (x - mean) * (x - mean) / static_cast<double>(of.size());
  }
  double mean = 0, variance = 0;
};

/// Returns the pixel of an image that was augmented; 0 for a zero. Checks that the channels have moved together.
std::int64_t source_of(const Batch<float>& batch, std::int64_t image, std::int64_t y, std::int64_t x) {
  const float* const pixel = batch.inputs.data() + ((image * kSide + y) * kSide + x) * kChannels;
  EXPECT_EQ(pixel[1], pixel[0] == 0 ? 0 : pixel[0] + 100);
  return static_cast<std::int64_t>(pixel[0]);
}

TEST(Augmentation, CropsMoveImagesEvenly) {
  constexpr std::int64_t kPadding = 3, kCount = 4000;
  const auto data = augmented(images(kCount), {.crop_padding = kPadding});
  const Batch<float> batch = gathered(*data);
  std::vector<double> down, right, products;
  for (std::int64_t image = 0; image < kCount; ++image) {
    // The pixel in the middle is always one of the image's.
    const std::int64_t from = source_of(batch, image, 4, 4) - 1;
    const std::int64_t dy = from / kSide - 4, dx = from % kSide - 4;
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        const bool inside = y + dy >= 0 && y + dy < kSide && x + dx >= 0 && x + dx < kSide;
        ASSERT_EQ(source_of(batch, image, y, x), inside ? 1 + (y + dy) * kSide + x + dx : 0);
      }
    }
    down.push_back(static_cast<double>(dy));
    right.push_back(static_cast<double>(dx));
    products.push_back(static_cast<double>(dy * dx));
    ASSERT_LE(std::abs(dy), kPadding);
    ASSERT_LE(std::abs(dx), kPadding);
  }
  // Uniform on 7 values: mean 0, variance 4; five standard deviations of the mean and of the variance of 4000 draws.
  for (const auto& offsets : {down, right}) {
    EXPECT_NEAR(Moments(offsets).mean, 0, 5 * 2 / std::sqrt(kCount));
    EXPECT_NEAR(Moments(offsets).variance, 4, 5 * std::sqrt(12.0 / kCount));
  }
  EXPECT_NEAR(Moments(products).mean, 0, 5 * 4 / std::sqrt(kCount)) << "the two offsets are independent";
}

TEST(Augmentation, FlipsMirrorFromLeftToRight) {
  constexpr std::int64_t kCount = 4000;
  const Batch<float> batch = gathered(*augmented(images(kCount), {.flip = 0.3}));
  std::int64_t flipped = 0;
  for (std::int64_t image = 0; image < kCount; ++image) {
    const bool flips = source_of(batch, image, 0, 0) == kSide;
    flipped += flips ? 1 : 0;
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        ASSERT_EQ(source_of(batch, image, y, x), 1 + y * kSide + (flips ? kSide - 1 - x : x));
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(flipped), 0.3 * kCount, 5 * std::sqrt(0.3 * 0.7 * kCount));
}

TEST(Augmentation, FlipsImagesAfterTheCrop) {
  constexpr std::int64_t kCount = 200;
  const Batch<float> batch = gathered(*augmented(images(kCount), {.crop_padding = 2, .flip = 0.5}));
  for (std::int64_t image = 0; image < kCount; ++image) {
    // The two pixels in the middle of a row always show the image.
    const std::int64_t from = source_of(batch, image, 4, 4) - 1;
    const bool flips = source_of(batch, image, 4, 5) < source_of(batch, image, 4, 4);
    const std::int64_t dy = from / kSide - 4, dx = from % kSide - (flips ? kSide - 1 - 4 : 4);
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        const std::int64_t row = y + dy, column = (flips ? kSide - 1 - x : x) + dx;
        const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
        ASSERT_EQ(source_of(batch, image, y, x), inside ? 1 + row * kSide + column : 0) << (flips ? "flipped" : "");
      }
    }
  }
}

TEST(Augmentation, CutsOutASquare) {
  constexpr std::int64_t kCount = 4000, kCutout = 3;
  const Batch<float> batch = gathered(*augmented(images(kCount), {.cutout = kCutout}));
  std::vector<double> tops, lefts, products;
  for (std::int64_t image = 0; image < kCount; ++image) {
    std::int64_t top = kSide, left = kSide, bottom = -1, right = -1, zeros = 0;
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        if (source_of(batch, image, y, x) != 0) continue;
        ++zeros;
        top = std::min(top, y), left = std::min(left, x), bottom = std::max(bottom, y), right = std::max(right, x);
      }
    }
    ASSERT_EQ(zeros, (bottom - top + 1) * (right - left + 1)) << "a rectangle";
    // A square of 3 around a pixel loses a row or column at the border.
    ASSERT_EQ(bottom - top + 1, top == 0 || bottom == kSide - 1 ? bottom - top + 1 : kCutout);
    ASSERT_GE(bottom - top, 1);
    ASSERT_LE(bottom - top, 2);
    ASSERT_GE(right - left, 1);
    ASSERT_LE(right - left, 2);
    // Distances from the mean. Rows and columns begin at -1 to 6, of which -1 is outside.
    tops.push_back(static_cast<double>(bottom == 1 ? -1 : top) - 2.5);
    lefts.push_back(static_cast<double>(right == 1 ? -1 : left) - 2.5);
    products.push_back(tops.back() * lefts.back());
  }
  EXPECT_NEAR(Moments(tops).mean, 0, 5 * std::sqrt(5.25 / kCount)) << "the centre is uniform on 8 rows";
  EXPECT_NEAR(Moments(lefts).mean, 0, 5 * std::sqrt(5.25 / kCount)) << "the centre is uniform on 8 columns";
  EXPECT_NEAR(Moments(products).mean, 0, 5 * 5.25 / std::sqrt(kCount)) << "row and column are independent";
}

TEST(Augmentation, MixesTwoSamplesWithSharesOfTheBetaDistribution) {
  constexpr std::int64_t kCount = 3000;
  for (const double alpha : {0.2, 1.0, 4.0}) {
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), 0.0F);
    std::vector<std::int32_t> labels(kCount);
    std::iota(labels.begin(), labels.end(), 0);
    const auto data =
        augmented(memory_dataset(
                      {.shape = {1}, .inputs = values, .labels = labels, .classes = static_cast<std::int32_t>(kCount)}),
                  {.mixup = alpha});
    EXPECT_EQ(data->target_shape(), Shape{kCount});
    const Batch<double> batch = gathered<double>(*data);
    std::vector<double> shares, others;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double* const target = batch.targets.data() + i * kCount;
      const double share = target[i];
      std::int64_t other = i;
      for (std::int64_t c = 0; c < kCount; ++c) {
        if (c != i && target[c] != 0) other = c;
      }
      ASSERT_NEAR(std::accumulate(target, target + kCount, 0.0), 1, 1e-12);
      ASSERT_NEAR(batch.inputs.data()[i], share * static_cast<double>(i) + (1 - share) * static_cast<double>(other),
                  1e-9);
      if (other == i) continue;  // mixed with itself, or by a share that rounds to 1
      ASSERT_EQ(batch.labels[static_cast<std::size_t>(i)], share < 0.5 ? other : i);
      shares.push_back(share);
      others.push_back(static_cast<double>(other));
    }
    EXPECT_GE(shares.size(), static_cast<std::size_t>(0.95 * kCount));
    // Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)); the variance of the squared distance is below 1/16 / 4.
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(Moments(shares).mean, 0.5, 5 * std::sqrt(variance / kCount)) << alpha;
    EXPECT_NEAR(Moments(shares).variance, variance, 5 * 0.125 / std::sqrt(kCount)) << alpha;
    EXPECT_NEAR(Moments(others).mean, kCount / 2.0, 5 * kCount / std::sqrt(12.0 * kCount)) << "from the whole data set";
  }
}

TEST(Augmentation, MixupMixesAugmentedSamples) {
  // Equal images, all flipped: a mixture of two is the flipped image.
  const Batch<double> flipped = gathered<double>(*augmented(images(20), {.flip = 1}));
  const Batch<double> mixed = gathered<double>(*augmented(images(20), {.flip = 1, .mixup = 1}));
  const Batch<double> nested = gathered<double>(*augmented(augmented(images(20), {.flip = 1}), {.mixup = 1}));
  for (std::int64_t i = 0; i < flipped.inputs.size(); ++i) {
    ASSERT_NEAR(mixed.inputs.data()[i], flipped.inputs.data()[i], 1e-9);
    ASSERT_NEAR(nested.inputs.data()[i], flipped.inputs.data()[i], 1e-9);
  }
}

TEST(Augmentation, MixupDrawsEachSampleOfTheDataSet) {
  const auto data = augmented(images(3), {.mixup = 1});
  std::vector<double> shares(9);  // of the samples in each mixture, summed
  for (std::int64_t epoch = 0; epoch < 50; ++epoch) {
    const Batch<double> batch = gathered<double>(*data, {.seed = 7, .epoch = epoch});
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] += batch.targets.data()[i];
  }
  EXPECT_THAT(shares, testing::Each(testing::Gt(0)));
}

TEST(Augmentation, TinyAlphaGivesSharesOfZeroOrOne) {
  const Batch<double> batch = gathered<double>(*augmented(images(200), {.mixup = 1e-5}));
  for (const double target : batch.targets.host()) {
    ASSERT_TRUE(std::isfinite(target));
    ASSERT_TRUE(target < 1e-3 || target > 1 - 1e-3) << target;
  }
}

TEST(Augmentation, MixupMixesTargetsAndWeightsOfSamplesWithoutClasses) {
  const auto data = augmented(memory_dataset({.shape = {1},
                                              .inputs = std::vector<float>{0, 1, 2, 3},
                                              .targets = {0, 10, 20, 30},
                                              .target_shape = {1},
                                              .weights = {1, 2, 3, 4}}),
                              {.mixup = 1});
  EXPECT_EQ(data->target_shape(), Shape{1});
  const Batch<double> batch = gathered<double>(*data);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(batch.targets.data()[i], 10 * batch.inputs.data()[i], 1e-9);
    EXPECT_NEAR(batch.weight(i), 1 + batch.inputs.data()[i], 1e-6);
  }
}

const AugmentationOptions kAll{.crop_padding = 2, .flip = 0.5, .cutout = 3, .mixup = 0.4};

TEST(Augmentation, DependsOnSeedEpochAndSampleOnly) {
  const auto data = augmented(images(50), kAll);
  const Batch<float> batch = gathered(*data);
  EXPECT_EQ(numbers(gathered(*data).inputs), numbers(batch.inputs));
  EXPECT_EQ(numbers(gathered(*augmented(images(50), kAll)).inputs), numbers(batch.inputs));
  EXPECT_NE(numbers(gathered(*data, {.seed = 7, .epoch = 4}).inputs), numbers(batch.inputs));
  EXPECT_NE(numbers(gathered(*data, {.seed = 8, .epoch = 3}).inputs), numbers(batch.inputs));
  Batch<float> part;  // another batch, in another order
  data->gather_for_training(std::vector<std::uint32_t>{30, 2, 49}, kDraw, part);
  const auto elements = static_cast<std::size_t>(batch.inputs.sample_elements());
  for (const auto& [place, sample] : {std::pair{0U, 30U}, {1U, 2U}, {2U, 49U}}) {
    EXPECT_TRUE(std::equal(part.inputs.data() + place * elements, part.inputs.data() + (place + 1) * elements,
                           batch.inputs.data() + sample * elements));
    EXPECT_EQ(part.labels[place], batch.labels[sample]);
  }
}

TEST(Augmentation, BothPrecisionsDrawTheSame) {
  const auto data = augmented(images(20), kAll);
  const Batch<float> single = gathered(*data);
  const Batch<double> both = gathered<double>(*data);
  EXPECT_EQ(single.labels, both.labels);
  for (std::int64_t i = 0; i < single.inputs.size(); ++i) {
    ASSERT_NEAR(single.inputs.data()[i], both.inputs.data()[i], 1e-4);
  }
}

TEST(Augmentation, EvaluationIsNotAugmented) {
  const auto plain = images(20);
  for (const AugmentationOptions& options : {kAll, AugmentationOptions{.flip = 1}}) {
    Batch<float> expected, found;
    plain->gather(all_of(*plain), expected);
    augmented(plain, options)->gather(all_of(*plain), found);
    EXPECT_EQ(numbers(found.inputs), numbers(expected.inputs));
    EXPECT_EQ(found.labels, expected.labels);
    EXPECT_EQ(found.targets.samples(), options.mixup > 0 ? 20 : 0);
    EXPECT_EQ(found.targets_are_probabilities, options.mixup > 0);
    for (std::int64_t i = 0; i < found.targets.size(); ++i) {
      ASSERT_EQ(found.targets.data()[i], i / 20 == i % 20 ? 1 : 0) << "targets of mixup are those of the labels";
    }
  }
}

TEST(Augmentation, NestedAugmentationsDrawTheirOwnNumbers) {
  constexpr std::int64_t kCount = 1000;
  const auto twice = augmented(augmented(images(kCount), {.flip = 0.5}), {.flip = 0.5});
  const Batch<float> batch = gathered(*twice);
  std::int64_t flipped = 0;
  for (std::int64_t image = 0; image < kCount; ++image) flipped += source_of(batch, image, 0, 0) == kSide ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(flipped), kCount / 2.0, 5 * std::sqrt(kCount / 4.0)) << "the same flip twice is none";
}

TEST(Augmentation, TheChecksumCoversDataAndOptions) {
  const auto checksum = [](const AugmentationOptions& options, std::int64_t count = 20) {
    return augmented(images(count), options)->checksum();
  };
  EXPECT_EQ(checksum(kAll), checksum(kAll));
  EXPECT_NE(checksum(kAll, 21), checksum(kAll));
  AugmentationOptions crop = kAll, flip = kAll, cutout = kAll, mixup = kAll;
  crop.crop_padding = 1, flip.flip = 0.6, cutout.cutout = 4, mixup.mixup = 0.5;
  for (const AugmentationOptions& other : {crop, flip, cutout, mixup}) EXPECT_NE(checksum(other), checksum(kAll));
}

TEST(Augmentation, RefusesWhatDoesNotFit) {
  const auto error = [](std::shared_ptr<const Dataset> data, const AugmentationOptions& options) {
    return message_of<InvalidArgument>([&] { augmented(std::move(data), options); });
  };
  const auto vectors = memory_dataset({.shape = {4}, .inputs = std::vector<float>(8), .labels = {0, 1}, .classes = 2});
  for (const AugmentationOptions& options :
       {AugmentationOptions{.crop_padding = 1}, AugmentationOptions{.flip = 0.5}, AugmentationOptions{.cutout = 2}}) {
    EXPECT_THAT(error(vectors, options),
                HasSubstr("need images of shape {height, width, channels}, but the samples are 4"));
  }
  EXPECT_NO_THROW(augmented(vectors, {.mixup = 0.2}));
  EXPECT_THAT(error(nullptr, {}), HasSubstr("needs a data set"));
  EXPECT_THAT(error(images(4), {.crop_padding = -1}), HasSubstr("crop padding of -1"));
  EXPECT_THAT(error(images(4), {.crop_padding = 9}), HasSubstr("crop padding of 9"));
  EXPECT_THAT(error(images(4), {.flip = 1.5}), HasSubstr("flip is 1.5"));
  EXPECT_THAT(error(images(4), {.cutout = -1}), HasSubstr("cutout of -1"));
  EXPECT_THAT(error(images(4), {.mixup = -0.5}), HasSubstr("mixup is -0.5"));
  const auto both = memory_dataset({.shape = {1},
                                    .inputs = std::vector<float>(2),
                                    .labels = {0, 1},
                                    .classes = 2,
                                    .targets = std::vector<float>(6),
                                    .target_shape = {3}});
  EXPECT_THAT(error(both, {.mixup = 0.2}), HasSubstr("targets of shape 3"));
  const auto stream = stream_dataset({.shape = {1}, .samples_per_epoch = 5}, [] { return [](StreamSample&) {}; });
  EXPECT_THAT(error(stream, {.mixup = 0.2}), HasSubstr("a stream cannot give"));
}

/// Gives a label that its `classes` does not allow.
class WrongLabel final : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  const Shape& shape() const override { return shape_; }
  std::int32_t classes() const override { return 2; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    batch.labels.assign(samples.size(), 2);
  }

 private:
  const Shape shape_{1};
};

TEST(Mixup, RefusesALabelOutOfRange) {
  const auto mixed = augmented(std::make_shared<const WrongLabel>(), {.mixup = 1});
  Batch<float> batch;
  EXPECT_THAT(farandole::test::message_of<InvalidArgument>([&] {
                mixed->gather_for_training(std::vector<std::uint32_t>{0}, {1, 0}, batch);
              }),
              testing::HasSubstr("label 2, which is not in [0, 2)"));
}

}  // namespace
}  // namespace farandole::trainer
