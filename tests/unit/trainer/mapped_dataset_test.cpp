// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <thread>

#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "npy_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::npy_array;
using test::npy_file;
using testing::ElementsAre;

class Mapped : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    test::write_bytes(temporary_.path() / name, bytes);
    return temporary_.path() / name;
  }
  /// The message for a file of inputs, after its name.
  std::string refusal(const std::string& bytes) const {
    const auto file = write("refused.npy", bytes);
    const std::string message = message_of<DataError>([&] { memory_mapped_dataset({.inputs = file}); });
    EXPECT_TRUE(message.starts_with(file.string())) << message;
    return message.substr(std::min(file.string().size(), message.size()));
  }
  template <class Scalar = double>
  static Batch<Scalar> gather(const Dataset& data, const std::vector<std::uint32_t>& samples) {
    Batch<Scalar> batch;
    data.gather(samples, batch);
    return batch;
  }

 private:
  test::TemporaryDirectory temporary_;
};

TEST_F(Mapped, ReadsEveryType) {
  const auto inputs = [&](const std::string& bytes) {
    return gather(*memory_mapped_dataset({.inputs = write("x.npy", bytes)}), {1, 0}).inputs;
  };
  EXPECT_THAT(inputs(npy_array<float>("<f4", "(2,)", {0.5F, -3})).host(), ElementsAre(-3, 0.5));
  EXPECT_THAT(inputs(npy_array<double>("<f8", "(2, 1)", {0.1, 1e300})).host(), ElementsAre(1e300, 0.1));
  EXPECT_THAT(inputs(npy_array<std::uint8_t>("|u1", "(2,)", {0, 255})).host(), ElementsAre(1, 0));
  EXPECT_THAT(inputs(npy_array<std::int32_t>("<i4", "(2,)", {-7, 8})).host(), ElementsAre(8, -7));
  EXPECT_THAT(inputs(npy_array<std::int64_t>("<i8", "(2,)", {1LL << 40, -1})).host(), ElementsAre(-1, 1099511627776.0));
  EXPECT_THAT(inputs(npy_array<float>("<f4", "(2,)", {1, 2}, 2)).host(), ElementsAre(2, 1));
}

TEST_F(Mapped, GathersInputsLabelsTargetsAndWeights) {
  const auto data = memory_mapped_dataset(
      {.inputs = write("x.npy", npy_array<std::uint8_t>("|u1", "(3, 1, 2)", {0, 51, 102, 153, 204, 255})),
       .normalization = {{.mean = 0.2}, {.deviation = 2}},
       .labels = write("y.npy", npy_array<std::int64_t>("<i8", "(3, 2)", {0, 1, 2, 3, 1, 0})),
       .classes = 4,
       .class_names = {"a", "b", "c", "d"},
       .targets = write("t.npy", npy_array<double>("<f8", "(3,)", {0.25, 0.5, 0.75})),
       .weights = write("w.npy", npy_array<float>("<f4", "(3,)", {1, 0, 2}))});
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->shape(), (Shape{1, 2}));
  EXPECT_EQ(data->target_shape(), Shape{1});
  EXPECT_EQ(data->labels_per_sample(), 2);
  EXPECT_EQ(data->classes(), 4);
  EXPECT_EQ(data->class_names()[3], "d");
  const Batch<double> batch = gather(*data, {2, 0});
  EXPECT_THAT(batch.inputs.host(), ElementsAre(testing::DoubleNear(0.6, 1e-15), testing::DoubleNear(0.5, 1e-15),
                                               testing::DoubleNear(-0.2, 1e-15), testing::DoubleNear(0.1, 1e-15)));
  EXPECT_THAT(batch.labels, ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(batch.targets.host(), ElementsAre(0.75, 0.25));
  EXPECT_THAT(batch.weights, ElementsAre(2, 1));
  EXPECT_THAT(gather<float>(*data, {1}).targets.host(), ElementsAre(0.5F));
}

TEST_F(Mapped, WrongLabelsAndWeightsAreFoundWhenGathered) {
  const auto x = write("x.npy", npy_array<float>("<f4", "(3,)", {1, 2, 3}));
  const auto labels = memory_mapped_dataset(
      {.inputs = x, .labels = write("y.npy", npy_array<std::int64_t>("<i8", "(3,)", {0, 5, 1LL << 32})), .classes = 2});
  EXPECT_THAT(gather(*labels, {0}).labels, ElementsAre(0));
  EXPECT_TRUE(contains(message_of<DataError>([&] {
                         gather(*labels, {0, 1});
                       }),
                       "y.npy: a label of sample 1 is 5, which is not in [0, 2)"));
  EXPECT_TRUE(contains(message_of<DataError>([&] { gather(*labels, {2}); }), "a label of sample 2 is 4294967296"));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto weights =
      memory_mapped_dataset({.inputs = x, .weights = write("w.npy", npy_array<float>("<f4", "(3,)", {1, -1, kNan}))});
  EXPECT_TRUE(contains(message_of<DataError>([&] { gather(*weights, {1}); }), "w.npy: the weight of sample 1 is -1"));
  EXPECT_TRUE(contains(message_of<DataError>([&] { gather(*weights, {2}); }), "the weight of sample 2 is nan"));
}

TEST_F(Mapped, FilesThatDoNotFitAreRefused) {
  const auto x = write("x.npy", npy_array<float>("<f4", "(3,)", {1, 2, 3}));
  const auto two = write("two.npy", npy_array<std::int32_t>("<i4", "(2,)", {0, 1}));
  const auto floats = write("floats.npy", npy_array<float>("<f4", "(3,)", {1, 2, 3}));
  const auto refused = [](const ArrayFiles& files) {
    return message_of<DataError>([&] { memory_mapped_dataset(files); });
  };
  const auto misused = [](const ArrayFiles& files) {
    return message_of<InvalidArgument>([&] { memory_mapped_dataset(files); });
  };
  EXPECT_TRUE(contains(refused({.inputs = x, .targets = two}), "x.npy has 3 samples, but "));
  EXPECT_TRUE(contains(refused({.inputs = x, .labels = floats, .classes = 2}), "labels are whole numbers"));
  EXPECT_TRUE(contains(refused({.inputs = two, .weights = two}), "weights are one number of type f4 or f8 per sample"));
  EXPECT_TRUE(contains(misused({.inputs = x, .labels = two}), "classes is 0; give both, or neither"));
  EXPECT_TRUE(contains(misused({.inputs = x, .classes = 2}), "give both, or neither"));
  EXPECT_TRUE(contains(misused({}), "inputs is empty"));
  EXPECT_TRUE(contains(misused({.inputs = x, .normalization = {{}}}), "a normalization is for inputs of type u1"));
  EXPECT_TRUE(contains(misused({.inputs = x, .class_names = {"a"}}), "1 names of classes, but classes is 0"));
  EXPECT_TRUE(contains(refused({.inputs = x.parent_path() / "none.npy"}), "cannot map"));
  EXPECT_TRUE(contains(refused({.inputs = x.parent_path()}), "cannot map"));
}

TEST_F(Mapped, OtherFormatsAreRefused) {
  const std::string data(12, 'x');
  const auto file = [&](const std::string& dictionary) { return npy_file(dictionary, data); };
  EXPECT_EQ(refusal("PK\3\4 an archive of numpy.savez"), ": not a file of numpy.save, by its first bytes");
  EXPECT_EQ(refusal(""), ": not a file of numpy.save, by its first bytes");
  std::string third = npy_array<float>("<f4", "(3,)", {1, 2, 3});
  third[6] = 3;
  EXPECT_EQ(refusal(third), ": version 3 of NumPy's format; 1 and 2 are supported");
  EXPECT_TRUE(
      contains(refusal(file("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }")), "elements of type >f4"));
  EXPECT_TRUE(
      contains(refusal(file("{'descr': '<f2', 'fortran_order': False, 'shape': (6,), }")), "elements of type <f2"));
  EXPECT_TRUE(contains(refusal(file("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }")), "Fortran order"));
  EXPECT_TRUE(contains(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (), }")), "a single number"));
  EXPECT_TRUE(
      contains(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }")), "has no elements"));
  EXPECT_TRUE(contains(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }")),
                       "takes 8 bytes, but the file has 12"));
  for (const char* text :
       {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "{'descr': '<f4', 'shape': (3,), }", "{}",
        "", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } more", "{'descr': '<f4"}) {
    EXPECT_TRUE(contains(refusal(file(text)), ": the header is no dictionary")) << text;
  }
}

TEST_F(Mapped, TruncatedFilesAreRefused) {
  const std::string whole = npy_array<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6});
  for (std::size_t length = 0; length < whole.size(); ++length) refusal(whole.substr(0, length));
  EXPECT_TRUE(
      contains(refusal(whole.substr(0, whole.size() - 1)), "too short for an array of shape 3x2; it is truncated"));
  EXPECT_TRUE(
      contains(refusal(npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "x")),
               "too short for an array of shape 4294967296x4294967296"));
}

TEST_F(Mapped, ChecksumCoversHeaderSizeAndBlocks) {
  std::vector<std::uint8_t> bytes(1 << 20, 7);
  const auto checksum = [&](const std::string& shape) {
    return memory_mapped_dataset({.inputs = write("x.npy", npy_array("|u1", shape, bytes))})->checksum();
  };
  const std::uint32_t before = checksum("(1024, 1024)");
  EXPECT_EQ(checksum("(1024, 1024)"), before);
  EXPECT_NE(checksum("(2048, 512)"), before);
  for (const std::size_t place : {std::size_t{0}, bytes.size() - 1}) {
    bytes[place] = 8;
    EXPECT_NE(checksum("(1024, 1024)"), before) << place;
    bytes[place] = 7;
  }
  std::fill(bytes.begin() + (1 << 18), bytes.begin() + (1 << 19), std::uint8_t{8});
  EXPECT_NE(checksum("(1024, 1024)"), before);
}

TEST_F(Mapped, ThreadsGatherTheSameValues) {
  std::vector<float> values(1 << 18);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto data = memory_mapped_dataset({.inputs = write("x.npy", npy_array("<f4", "(4096, 64)", values))});
  std::vector<std::uint32_t> samples;
  for (std::uint32_t i = 0; i < 4096; ++i) samples.push_back((i * 1237) % 4096);
  std::vector<Batch<float>> batches(4);
  std::vector<std::thread> threads;
  for (Batch<float>& batch : batches) threads.emplace_back([&] { data->gather(samples, batch); });
  for (std::thread& thread : threads) thread.join();
  for (const Batch<float>& batch : batches) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      ASSERT_EQ(batch.inputs.data()[64 * i + 63], static_cast<float>(64 * samples[i] + 63));
    }
  }
}

}  // namespace
}  // namespace farandole::trainer
