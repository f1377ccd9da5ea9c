// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "image_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;
using farandole::test::message_of;
using test::contains;
using test::jpeg_file;
using test::png_file;
using test::smooth_pixels;
using test::TemporaryDirectory;
using test::write_bytes;
using testing::ElementsAre;

/// A PNG of one colour.
std::string plain_png(std::uint8_t value, std::uint32_t side = 4) {
  return png_file(side, side, std::vector<std::uint8_t>(3 * side * side, value));
}

class ImageFolder : public testing::Test {
 protected:
  void SetUp() override {
    add("cat/b.png", plain_png(20));
    add("cat/a.png", plain_png(10));
    add("ant/deep/c.PNG", plain_png(30));
    add("ant/d.jpeg", jpeg_file(4, 4, std::vector<std::uint8_t>(48, 40)));
    add("ant/notes.txt", "no image");
    add("ant/.hidden.png", "no image");
    add(".ipynb_checkpoints/e.png", "no image");
    add("readme.png", "not in a class");
  }
  void add(const std::string& file, const std::string& bytes) {
    fs::create_directories((path() / file).parent_path());
    write_bytes(path() / file, bytes);
  }
  const fs::path& path() const { return temporary_.path(); }
  std::shared_ptr<const Dataset> load(ImageFolderOptions options = {}) const {
    options.height = options.width = 4;
    return image_folder(path(), options);
  }
  std::string refusal(const ImageFolderOptions& options = {}) const {
    return message_of<DataError>([&] { load(options); });
  }

 private:
  TemporaryDirectory temporary_;
};

TEST_F(ImageFolder, SubfoldersAreClassesSortedByName) {
  const auto data = load();
  EXPECT_EQ(data->size(), 4);
  EXPECT_EQ(data->shape(), (Shape{4, 4, 3}));
  EXPECT_EQ(data->classes(), 2);
  EXPECT_THAT(data->class_names(), ElementsAre("ant", "cat"));
  EXPECT_EQ(data->labels_per_sample(), 1);
  Batch<double> batch;
  batch.weights = {7};  // of another dataset
  data->gather(std::vector<std::uint32_t>{3, 0, 1, 2}, batch);
  EXPECT_THAT(batch.labels, ElementsAre(1, 0, 0, 1));
  EXPECT_TRUE(batch.weights.empty());
  EXPECT_EQ(batch.targets.samples(), 0);
  const double expected[] = {20, 40, 30, 10};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(batch.inputs.data()[48 * i], expected[i] / 255, 1e-15);
}

TEST_F(ImageFolder, GivenClassesKeepTheirNumbers) {
  const auto data = load({.classes = {"dog", "cat", "ant"}});
  EXPECT_EQ(data->classes(), 3);
  Batch<float> batch;
  data->gather(std::vector<std::uint32_t>{0, 3}, batch);
  EXPECT_THAT(batch.labels, ElementsAre(1, 2));
  EXPECT_TRUE(contains(refusal({.classes = {"cat"}}), "has the sub-folder 'ant', which is none of the 1 classes"));
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { load({.classes = {"cat", "cat"}}); }), "the name 'cat'"));
}

TEST_F(ImageFolder, EachChannelHasItsNormalization) {
  add("cat/b.png", png_file(4, 4, smooth_pixels(4, 4)));
  const auto data = load({.normalization = {{.mean = 0.5}, {.deviation = 2}, {.mean = 0.1, .deviation = 0.5}}});
  Batch<float> batch;
  data->gather(std::vector<std::uint32_t>{3}, batch);
  const auto pixels = smooth_pixels(4, 4);
  for (std::size_t i = 0; i < pixels.size(); i += 3) {
    EXPECT_FLOAT_EQ(batch.inputs.data()[i], static_cast<float>(pixels[i] / 255.0 - 0.5));
    EXPECT_FLOAT_EQ(batch.inputs.data()[i + 1], static_cast<float>(pixels[i + 1] / 255.0 / 2));
    EXPECT_FLOAT_EQ(batch.inputs.data()[i + 2], static_cast<float>((pixels[i + 2] / 255.0 - 0.1) / 0.5));
  }
  const auto refused = message_of<InvalidArgument>([&] { load({.normalization = {{}, {}}}); });
  EXPECT_TRUE(contains(refused, "2 normalizations, but samples of shape 4x4x3 have 3 channels"));
  const auto zero = message_of<InvalidArgument>([&] { load({.normalization = {{.deviation = 0}}}); });
  EXPECT_TRUE(contains(zero, "the deviation not 0"));
}

TEST_F(ImageFolder, GreyHasOneChannel) {
  const auto data = load({.channels = 1});
  EXPECT_EQ(data->shape(), (Shape{4, 4, 1}));
  Batch<float> batch;
  data->gather(std::vector<std::uint32_t>{2}, batch);
  EXPECT_EQ(batch.inputs.size(), 16);
  EXPECT_FLOAT_EQ(batch.inputs.data()[0], 10.0F / 255);
}

TEST_F(ImageFolder, WrongOptionsAreRefused) {
  const auto refused = [&](const ImageFolderOptions& options) {
    return message_of<InvalidArgument>([&] { image_folder(path(), options); });
  };
  EXPECT_TRUE(contains(refused({.height = 0}), "height 0 and width 224; both must be 1 to 32768"));
  EXPECT_TRUE(contains(refused({.width = 40000}), "width 40000"));
  EXPECT_TRUE(contains(refused({.channels = 4}), "4 channels; 1 (grey) and 3"));
}

TEST_F(ImageFolder, MissingAndEmptyFoldersAreRefused) {
  EXPECT_TRUE(contains(message_of<DataError>([&] { image_folder(path() / "none"); }), "cannot list"));
  fs::create_directory(path() / "dog");
  EXPECT_TRUE(contains(refusal(), "dog has no images (.png, .jpg, .jpeg)"));
  EXPECT_TRUE(contains(message_of<DataError>([&] { image_folder(path() / "dog"); }), "dog has no sub-folders"));
}

TEST_F(ImageFolder, AnotherFormatIsRefusedAtOnce) {
  add("cat/movie.jpg", "GIF89a and more");
  EXPECT_TRUE(contains(refusal(), "cat/movie.jpg: neither PNG nor JPEG, by its first bytes"));
  add("cat/movie.jpg", "");
  EXPECT_TRUE(contains(refusal(), "cat/movie.jpg: neither PNG nor JPEG, by its first bytes"));
}

TEST_F(ImageFolder, ACorruptImageIsNamedWhenItIsGathered) {
  const std::string whole = plain_png(9);
  add("cat/a.png", whole.substr(0, whole.size() / 2));
  const auto data = load();
  Batch<float> batch;
  data->gather(std::vector<std::uint32_t>{3}, batch);
  const auto message = message_of<DataError>([&] { data->gather(std::vector<std::uint32_t>{3, 2}, batch); });
  EXPECT_TRUE(contains(message, (path() / "cat/a.png").string() + ": cannot decode PNG: "));
  fs::remove(path() / "cat/a.png");
  const auto gone = message_of<DataError>([&] { data->gather(std::vector<std::uint32_t>{2}, batch); });
  EXPECT_TRUE(contains(gone, "cat/a.png"));
}

TEST_F(ImageFolder, ChecksumCoversNamesSizesAndOptions) {
  const std::uint32_t before = load()->checksum();
  EXPECT_EQ(load()->checksum(), before);
  EXPECT_NE(load({.normalization = {{.mean = 0.5}}})->checksum(), before);
  EXPECT_NE(load({.classes = {"cat", "ant"}})->checksum(), before);
  fs::rename(path() / "cat/a.png", path() / "cat/z.png");
  EXPECT_NE(load()->checksum(), before);
  fs::rename(path() / "cat/z.png", path() / "cat/a.png");
  EXPECT_EQ(load()->checksum(), before);
  add("cat/a.png", plain_png(10) + "more");
  EXPECT_NE(load()->checksum(), before);
}

TEST_F(ImageFolder, ThreadsGatherTheSameValues) {
  for (int i = 0; i < 12; ++i) {
    const auto side = static_cast<std::uint32_t>(5 + i);
    add("cat/" + std::to_string(i) + ".png", png_file(side, side, smooth_pixels(side, side)));
    add("ant/" + std::to_string(i) + ".jpg", jpeg_file(side, side, smooth_pixels(side, side)));
  }
  const auto data = load();
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < data->size(); ++i) all.push_back(i);
  Batch<float> expected;
  data->gather(all, expected);
  std::vector<Batch<float>> batches(4);
  std::vector<std::thread> threads;
  for (Batch<float>& batch : batches) {
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 5; ++repeat) data->gather(all, batch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Batch<float>& batch : batches) {
    EXPECT_EQ(batch.labels, expected.labels);
    EXPECT_TRUE(std::equal(batch.inputs.host().begin(), batch.inputs.host().end(), expected.inputs.host().begin(),
                           expected.inputs.host().end()));
  }
}

}  // namespace
}  // namespace farandole::trainer
