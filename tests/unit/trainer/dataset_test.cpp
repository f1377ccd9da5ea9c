// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "farandole/core/error.h"
#include "message_of.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::TemporaryDirectory;
using test::write_bytes;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// Images of 2x3 whose pixel i of image n is 10 n + i.
std::string image_file(std::uint32_t count) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(2) + big_endian(3);
  for (std::uint32_t image = 0; image < count; ++image) {
    for (std::uint32_t pixel = 0; pixel < 6; ++pixel) bytes += static_cast<char>(10 * image + pixel);
  }
  return bytes;
}

std::string label_file(std::uint32_t count) {
  std::string bytes = big_endian(0x801) + big_endian(count);
  for (std::uint32_t image = 0; image < count; ++image) bytes += static_cast<char>(image % 10);
  return bytes;
}

void write_gzip(const std::filesystem::path& file, const std::string& bytes) {
  gzFile output = gzopen(file.c_str(), "wb");
  ASSERT_EQ(gzwrite(output, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
  ASSERT_EQ(gzclose(output), Z_OK);
}

class FashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    write_gzip(directory() / "train-images-idx3-ubyte.gz", image_file(5));
    write_gzip(directory() / "train-labels-idx1-ubyte.gz", label_file(5));
    write_bytes(directory() / "t10k-images-idx3-ubyte", image_file(2));
    write_bytes(directory() / "t10k-labels-idx1-ubyte", label_file(2));
  }
  const std::filesystem::path& directory() const { return temporary_.path(); }
  std::string refusal() const {
    return message_of<DataError>([&] { load_fashion_mnist(directory()); });
  }

 private:
  TemporaryDirectory temporary_;
};

TEST_F(FashionMnist, ReadsGzippedAndPlainFiles) {
  const TrainingData data = load_fashion_mnist(directory());
  EXPECT_EQ(data.training->size(), 5);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_EQ(data.training->shape(), (Shape{2, 3, 1}));

  Batch<double> batch;
  data.training->gather(std::vector<std::uint32_t>{4, 0}, batch);
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{4, 0}));
  const Tensor<double>& inputs = batch.inputs;
  ASSERT_EQ(inputs.size(), 12);
  EXPECT_DOUBLE_EQ(inputs.data()[0], (40.0 / 255 - 0.2860) / 0.3530);
  EXPECT_DOUBLE_EQ(inputs.data()[11], (5.0 / 255 - 0.2860) / 0.3530);
  Batch<float> rounded;
  data.training->gather(std::vector<std::uint32_t>{4, 0}, rounded);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(rounded.inputs.data()[i], static_cast<float>(inputs.data()[i]));
}

TEST_F(FashionMnist, MissingFileErrorNamesFileAndPackage) {
  std::filesystem::remove(directory() / "train-labels-idx1-ubyte.gz");
  const std::string message = refusal();
  EXPECT_TRUE(contains(message, "train-labels-idx1-ubyte"));
  EXPECT_TRUE(contains(message, "apt-get install dataset-fashion-mnist"));
  EXPECT_TRUE(contains(message, "--data-dir"));
}

TEST_F(FashionMnist, ACutPlainFileIsNamedWithBothSizes) {
  write_bytes(directory() / "t10k-images-idx3-ubyte", image_file(2).substr(0, 16 + 7));
  const std::string message = refusal();
  EXPECT_TRUE(contains(message, "t10k-images-idx3-ubyte: expected 12 bytes of data, found 7"));
}

TEST_F(FashionMnist, ACutHeaderIsNamed) {
  write_bytes(directory() / "t10k-images-idx3-ubyte", image_file(2).substr(0, 9));
  EXPECT_TRUE(contains(refusal(), "t10k-images-idx3-ubyte: expected a header of 16 bytes, found 9"));
}

TEST_F(FashionMnist, TrailingBytesAreRefused) {
  write_bytes(directory() / "t10k-labels-idx1-ubyte", label_file(2) + "x");
  EXPECT_TRUE(contains(refusal(), "expected 2 bytes of data, found more than 2"));
}

TEST_F(FashionMnist, ACutGzippedFileIsRefused) {
  const auto file = directory() / "train-images-idx3-ubyte.gz";
  const std::string whole = test::read_bytes(file);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(file, whole.substr(0, length));
    EXPECT_TRUE(contains(refusal(), "train-images-idx3-ubyte.gz")) << "cut to " << length << " bytes";
  }
}

TEST_F(FashionMnist, AnAlteredGzippedFileIsRefused) {
  const auto file = directory() / "train-images-idx3-ubyte.gz";
  std::string bytes = test::read_bytes(file);
  bytes[bytes.size() - 6] ^= 1;  // of the checksum at the end
  write_bytes(file, bytes);
  EXPECT_TRUE(contains(refusal(), "train-images-idx3-ubyte.gz"));
}

TEST_F(FashionMnist, AnotherFormatIsRefused) {
  write_bytes(directory() / "t10k-labels-idx1-ubyte", image_file(2));
  EXPECT_TRUE(contains(refusal(), "found 00000803"));
}

TEST_F(FashionMnist, CountsThatDifferAreRefused) {
  write_bytes(directory() / "t10k-labels-idx1-ubyte", label_file(3));
  EXPECT_TRUE(contains(refusal(), "has 3 labels"));
}

TEST_F(FashionMnist, AWrongLabelIsRefused) {
  std::string bytes = label_file(2);
  bytes.back() = 10;
  write_bytes(directory() / "t10k-labels-idx1-ubyte", bytes);
  EXPECT_TRUE(contains(refusal(), "label 1 is 10"));
}

TEST(MemoryDataset, RefusesWrongCountsLabelsAndWeights) {
  const std::vector<float> values(6);
  const auto refusal = [](const Samples& samples) {
    return message_of<InvalidArgument>([&] { memory_dataset(samples); });
  };
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .labels = {0, 0}, .classes = 1}),
            "a data set of 2 samples needs 4 inputs of shape 2, but 6 were given");
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .labels = {0, 1, 2}, .classes = 2}),
            "label 2 is 2, which is not in [0, 2)");
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .labels = {0, 1, 0}}), "3 labels, but classes is 0");
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .targets = {1, 2}, .target_shape = {1}}),
            "a data set of 2 samples needs 4 inputs of shape 2, but 6 were given");
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .weights = {1, 2}}),
            "a data set of 3 samples needs 3 weights, but 2 were given");
  EXPECT_EQ(refusal({.shape = {2}, .inputs = values, .weights = {1, -1, 2}}),
            "weight 1 is -1; it must be a finite number, at least 0");
}

TEST(MemoryDataset, GathersTargetsAndWeights) {
  const auto data = memory_dataset({.shape = {1},
                                    .inputs = std::vector<float>{1, 2, 3},
                                    .targets = {10, 11, 20, 21, 30, 31},
                                    .target_shape = {2},
                                    .weights = {0.5, 1, 2}});
  EXPECT_EQ(data->classes(), 0);
  EXPECT_EQ(data->target_shape(), Shape{2});
  Batch<double> batch;
  batch.labels = {7};  // of another data set
  data->gather(std::vector<std::uint32_t>{2, 0}, batch);
  EXPECT_THAT(batch.inputs.host(), testing::ElementsAre(3, 1));
  EXPECT_THAT(batch.targets.host(), testing::ElementsAre(30, 31, 10, 11));
  EXPECT_THAT(batch.weights, testing::ElementsAre(2, 0.5));
  EXPECT_TRUE(batch.labels.empty());
}

TEST(MemoryDataset, SamplesMayHaveSeveralLabels) {
  const Samples samples{.shape = {1},
                        .inputs = std::vector<float>{1, 2},
                        .labels = {0, 1, 2, 2, 1, 0},
                        .classes = 3,
                        .labels_per_sample = 3};
  const auto data = memory_dataset(samples);
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->labels_per_sample(), 3);
  Batch<float> batch;
  data->gather(std::vector<std::uint32_t>{1, 0}, batch);
  EXPECT_THAT(batch.labels, testing::ElementsAre(2, 1, 0, 0, 1, 2));
  const auto refusal = [&](auto change) {
    Samples changed = samples;
    change(changed);
    return message_of<InvalidArgument>([&] { memory_dataset(changed); });
  };
  EXPECT_EQ(refusal([](Samples& wrong) { wrong.labels.push_back(0); }),
            "a data set of 2 samples needs 6 labels, but 7 were given");
  EXPECT_EQ(refusal([](Samples& wrong) { wrong.labels_per_sample = 2; }),
            "a data set of 3 samples needs 3 inputs of shape 1, but 2 were given");
  EXPECT_EQ(refusal([](Samples& wrong) { wrong.labels_per_sample = 0; }), "0 labels per sample; at least 1 is needed");
}

TEST(MemoryDataset, ClassesMayHaveNames) {
  Samples samples{
      .shape = {1}, .inputs = std::vector<float>{1, 2}, .labels = {0, 1}, .classes = 2, .class_names = {"no", "yes"}};
  EXPECT_THAT(memory_dataset(samples)->class_names(), testing::ElementsAre("no", "yes"));
  const std::uint32_t before = memory_dataset(samples)->checksum();
  samples.class_names = {"yes", "no"};
  EXPECT_NE(memory_dataset(samples)->checksum(), before);
  samples.class_names = {"yes"};
  EXPECT_EQ(message_of<InvalidArgument>([&] { memory_dataset(samples); }), "1 names of classes, but classes is 2");
  samples.class_names = {"yes", "yes"};
  EXPECT_EQ(message_of<InvalidArgument>([&] { memory_dataset(samples); }), "two classes have the name 'yes'");
}

TEST(MemoryDataset, EachChannelMayHaveItsNormalization) {
  const auto data = memory_dataset({.shape = {1, 2, 2},
                                    .inputs = std::vector<std::uint8_t>{0, 255, 51, 102},
                                    .normalization = {{.mean = 0.2}, {.deviation = 0.5}}});
  Batch<double> batch;
  data->gather(std::vector<std::uint32_t>{0}, batch);
  EXPECT_THAT(batch.inputs.host(), testing::ElementsAre(-0.2, 2, 0, testing::DoubleNear(0.8, 1e-15)));
  EXPECT_EQ(
      message_of<InvalidArgument>([] {
        memory_dataset({.shape = {4}, .inputs = std::vector<std::uint8_t>(4), .normalization = {{}, {}}});
      }),
      "2 normalizations, but samples of shape 4 have 4 channels; give none, one for all channels, or one for each");
}

TEST(MemoryDataset, ChecksumCoversTargetsAndWeights) {
  Samples samples{.shape = {1}, .inputs = std::vector<float>{1, 2}, .targets = {1, 2}, .target_shape = {1}};
  const std::uint32_t before = memory_dataset(samples)->checksum();
  EXPECT_EQ(memory_dataset(samples)->checksum(), before);
  samples.weights = {1, 1};
  EXPECT_NE(memory_dataset(samples)->checksum(), before);
  samples.weights = {};
  samples.targets[1] = 3;
  EXPECT_NE(memory_dataset(samples)->checksum(), before);
}

/// Has only what a data set must have.
class Squares final : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  const Shape& shape() const override { return shape_; }
  const Shape& target_shape() const override { return shape_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    batch.inputs.resize(static_cast<std::int64_t>(samples.size()), shape_);
    batch.targets.resize(static_cast<std::int64_t>(samples.size()), shape_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      batch.inputs.data()[i] = static_cast<float>(samples[i]);
      batch.targets.data()[i] = static_cast<float>(samples[i] * samples[i]);
    }
  }

 private:
  const Shape shape_{1};
};

TEST(Dataset, OfTheProgramGathersDoublesFromItsFloats) {
  Batch<double> batch;
  static_cast<const Dataset&>(Squares()).gather(std::vector<std::uint32_t>{3, 1}, batch);
  EXPECT_THAT(batch.inputs.host(), testing::ElementsAre(3, 1));
  EXPECT_THAT(batch.targets.host(), testing::ElementsAre(9, 1));
}

/// 0, 1, …, count - 1
std::vector<std::uint32_t> first_indices(std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

TEST(Dataset, SyntheticDataAreTheSameEachTimeAndHaveAllClasses) {
  const auto first = synthetic_dataset(200, {3}, 4, 7), second = synthetic_dataset(200, {3}, 4, 7);
  const std::vector<std::uint32_t> all = first_indices(200);
  Batch<double> a, b;
  first->gather(all, a);
  second->gather(all, b);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_TRUE(std::equal(a.inputs.host().begin(), a.inputs.host().end(), b.inputs.host().begin()));
  for (int label = 0; label < 4; ++label) EXPECT_GT(std::count(a.labels.begin(), a.labels.end(), label), 20);
}

/// Mean and standard deviation of the values that `use` gives to its argument.
std::pair<double, double> moments(const std::function<void(const std::function<void(double)>&)>& use) {
  double count = 0, sum = 0, squares = 0;
  use([&](double value) { ++count, sum += value, squares += value * value; });
  return {sum / count, std::sqrt(squares / count - sum / count * (sum / count))};
}

// Means of two samples of a class differ by noise only, so noise and prototypes are told apart.
TEST(Dataset, SyntheticSamplesArePrototypesPlusNoise) {
  constexpr std::int64_t kElements = 2000;
  const auto data = synthetic_dataset(40, {kElements}, 4, 7, 0.5), quiet = synthetic_dataset(40, {kElements}, 4, 7, 0);
  const std::vector<std::uint32_t> all = first_indices(40);
  Batch<float> noisy, prototypes;
  data->gather(all, noisy);
  quiet->gather(all, prototypes);
  EXPECT_EQ(noisy.labels, prototypes.labels);
  const auto [prototype_mean, prototype_deviation] = moments([&](const auto& add) {
    for (const float value : prototypes.inputs.host().first(kElements)) add(value);
  });
  EXPECT_NEAR(prototype_mean, 0, 0.1);
  EXPECT_NEAR(prototype_deviation, 1, 0.05);
  const auto [noise_mean, noise_deviation] = moments([&](const auto& add) {
    for (std::size_t i = 0; i < noisy.inputs.host().size(); ++i)
      add(noisy.inputs.host()[i] - prototypes.inputs.host()[i]);
  });
  EXPECT_NEAR(noise_mean, 0, 0.01);
  EXPECT_NEAR(noise_deviation, 0.5, 0.005);
  for (std::size_t sample = 1; sample < all.size(); ++sample) {
    const auto first = prototypes.inputs.host().first(kElements),
               other = prototypes.inputs.host().subspan(sample * kElements, kElements);
    EXPECT_EQ(std::ranges::equal(first, other), prototypes.labels[sample] == prototypes.labels[0]);
  }
}

TEST(Dataset, DrawsOfSyntheticDataHaveTheSamePrototypesAndOtherSamples) {
  constexpr std::int64_t kElements = 20;
  const std::vector<std::uint32_t> all = first_indices(40);
  const auto gathered = [&](double noise, std::uint64_t draw) {
    Batch<float> batch;
    synthetic_dataset(40, {kElements}, 4, 7, noise, draw)->gather(all, batch);
    return batch;
  };
  const auto sample = [](const Batch<float>& batch, std::size_t i) {
    return batch.inputs.host().subspan(i * kElements, kElements);
  };
  const Batch<float> quiet = gathered(0, 0), quiet_test = gathered(0, 1), noisy = gathered(1, 0),
                     noisy_test = gathered(1, 1);
  EXPECT_NE(quiet.labels, quiet_test.labels);
  EXPECT_EQ(quiet_test.labels, noisy_test.labels);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      EXPECT_EQ(std::ranges::equal(sample(quiet, i), sample(quiet_test, k)), quiet.labels[i] == quiet_test.labels[k]);
      EXPECT_FALSE(std::ranges::equal(sample(noisy, i), sample(noisy_test, k)));
    }
  }
  Batch<float> text, text_test;
  synthetic_text(40, 8, 96, 7)->gather(all, text);
  synthetic_text(40, 8, 96, 7, 1)->gather(all, text_test);
  EXPECT_NE(text.labels, text_test.labels);
}

TEST(Dataset, SyntheticSamplesDependOnTheirIndicesOnly) {
  const auto data = synthetic_dataset(50, {3, 5, 1}, 4, 7);
  Batch<float> all, one;
  const std::vector<std::uint32_t> indices = first_indices(50);
  data->gather(indices, all);
  for (const std::uint32_t sample : {49U, 0U, 17U}) {
    data->gather(std::vector{sample}, one);
    EXPECT_THAT(one.inputs.host(), testing::ElementsAreArray(all.inputs.host().subspan(sample * 15, 15)));
    EXPECT_THAT(one.labels, testing::ElementsAre(all.labels[sample]));
  }
}

TEST(Dataset, LabelsOfSyntheticTextAreTheNextSymbols) {
  const auto text = synthetic_text(30, 8, 5, 7);
  EXPECT_EQ(text->labels_per_sample(), 8);
  EXPECT_EQ(text->classes(), 5);
  EXPECT_EQ(text->shape(), Shape{8});
  const std::vector<std::uint32_t> all = first_indices(30);
  Batch<float> batch;
  text->gather(all, batch);
  const std::span<const float> symbols = batch.inputs.host();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) EXPECT_EQ(static_cast<float>(batch.labels[i]), symbols[i + 1]);
  for (int symbol = 0; symbol < 5; ++symbol) EXPECT_GT(std::ranges::count(symbols, static_cast<float>(symbol)), 20);
}

TEST(Dataset, SyntheticDataOfOtherArgumentsHaveAnotherChecksum) {
  std::set<std::uint32_t> checksums;
  for (const auto& data :
       {synthetic_dataset(9, {4}, 3, 1), synthetic_dataset(8, {4}, 3, 1), synthetic_dataset(9, {2, 2}, 3, 1),
        synthetic_dataset(9, {4}, 2, 1), synthetic_dataset(9, {4}, 3, 2), synthetic_dataset(9, {4}, 3, 1, 2),
        synthetic_dataset(9, {4}, 3, 1, 1, 1), synthetic_text(9, 4, 3, 1), synthetic_text(9, 4, 3, 2),
        synthetic_text(9, 4, 3, 1, 1)}) {
    EXPECT_TRUE(checksums.insert(data->checksum()).second);
  }
  EXPECT_TRUE(checksums.contains(synthetic_dataset(9, {4}, 3, 1)->checksum()));
}

TEST(Dataset, SyntheticDataNeedSizesAndAFiniteNoise) {
  EXPECT_EQ(
      message_of<InvalidArgument>([] {
        synthetic_dataset(5, {3, 0}, 4, 7);
      }),
      "synthetic_dataset: 5 samples of shape 3x0 with 4 classes; expected at least 0 samples, extents of at least "
      "1, and at least 1 class");
  EXPECT_THAT(message_of<InvalidArgument>([] { synthetic_dataset(-1, {3}, 4, 7); }), testing::HasSubstr("-1 samples"));
  EXPECT_THAT(message_of<InvalidArgument>([] { synthetic_text(5, 3, 0, 7); }), testing::HasSubstr("0 classes"));
  EXPECT_THAT(message_of<InvalidArgument>([] { synthetic_dataset(5, {3}, 4, 7, std::nan("")); }),
              testing::HasSubstr("noise is nan; it must be a finite number"));
}

TEST(MemoryDataset, RefusesAShapeOfTargetsWithoutTargets) {
  EXPECT_THAT(farandole::test::message_of<InvalidArgument>([] {
                memory_dataset({.shape = {1}, .inputs = std::vector<float>{0, 1}, .target_shape = {3}});
              }),
              testing::HasSubstr("a data set of 2 samples needs 6 targets of shape 3, but 0 were given"));
}

}  // namespace
}  // namespace farandole::trainer
