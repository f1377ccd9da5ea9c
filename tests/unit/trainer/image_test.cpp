// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/core/error.h"
#include "image_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using test::jpeg_file;
using test::png_file;
using test::smooth_pixels;
using testing::ElementsAre;
using Bytes = std::vector<std::uint8_t>;

Image decode(const std::string& file) {
  return decode_image(std::as_bytes(std::span(file)), "x.png");
}

std::string refusal_of(const std::string& file) {
  return message_of<DataError>([&] { decode(file); });
}

TEST(Images, PngOfEveryKindBecomesRedGreenBlue) {
  const Bytes rgb{255, 0, 0, 1, 2, 3, 9, 8, 7, 40, 50, 60};
  EXPECT_EQ(decode(png_file(2, 2, rgb)).rgb, rgb);
  EXPECT_EQ(decode(png_file(2, 2, rgb, {.interlaced = true})).rgb, rgb);
  EXPECT_THAT(decode(png_file(2, 1, {7, 200}, {.color_type = PNG_COLOR_TYPE_GRAY})).rgb,
              ElementsAre(7, 7, 7, 200, 200, 200));
  EXPECT_THAT(decode(png_file(3, 1, {0b10100000}, {.color_type = PNG_COLOR_TYPE_GRAY, .bit_depth = 1})).rgb,
              ElementsAre(255, 255, 255, 0, 0, 0, 255, 255, 255));
  EXPECT_THAT(
      decode(png_file(2, 1, {1, 0}, {.color_type = PNG_COLOR_TYPE_PALETTE, .palette = {{1, 2, 3}, {4, 5, 6}}})).rgb,
      ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(decode(png_file(1, 1, {0x80, 0x00, 0xff, 0xff, 0x00, 0x00}, {.bit_depth = 16})).rgb,
              ElementsAre(128, 255, 0));
}

TEST(Images, PngLosesItsAlphaOnly) {
  EXPECT_THAT(decode(png_file(2, 1, {10, 20, 30, 0, 40, 50, 60, 128}, {.color_type = PNG_COLOR_TYPE_RGB_ALPHA})).rgb,
              ElementsAre(10, 20, 30, 40, 50, 60));
  EXPECT_THAT(decode(png_file(1, 1, {10, 99}, {.color_type = PNG_COLOR_TYPE_GRAY_ALPHA})).rgb, ElementsAre(10, 10, 10));
}

void expect_close(const Bytes& found, const Bytes& expected, int tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

TEST(Images, JpegOfEveryKindBecomesRedGreenBlue) {
  const Bytes pixels = smooth_pixels(24, 17);
  const Image image = decode(jpeg_file(24, 17, pixels));
  EXPECT_EQ(image.width, 24);
  EXPECT_EQ(image.height, 17);
  expect_close(image.rgb, pixels, 6);
  expect_close(decode(jpeg_file(24, 17, pixels, {.progressive = true})).rgb, pixels, 6);
  expect_close(decode(jpeg_file(2, 1, {7, 200}, {.color_space = JCS_GRAYSCALE, .components = 1})).rgb,
               {7, 7, 7, 200, 200, 200}, 2);
}

TEST(Images, InkOfCmykBecomesLight) {
  // As libjpeg writes CMYK: with Adobe's marker, so the amounts are inverted.
  const std::string file = jpeg_file(1, 1, {255, 128, 0, 200}, {.color_space = JCS_CMYK, .components = 4});
  expect_close(decode(file).rgb, {200, 100, 0}, 3);
  // Without the marker, whose payload begins with "Adobe", they are not.
  std::string plain = file;
  plain.replace(plain.find("Adobe"), 5, "Other");
  expect_close(decode(plain).rgb, {0, 27, 55}, 3);
}

TEST(Images, TruncatedFilesAreRefused) {
  const std::string png = png_file(9, 7, smooth_pixels(9, 7)), jpeg = jpeg_file(9, 7, smooth_pixels(9, 7));
  constexpr std::size_t kEndChunk = 12, kChecksum = 4;  // after these the pixels are complete
  for (std::size_t length = 0; length < png.size() - kEndChunk - kChecksum; ++length) {
    EXPECT_TRUE(contains(refusal_of(png.substr(0, length)), "x.png: ")) << length;
  }
  for (std::size_t length = 0; length < jpeg.size(); ++length) {
    EXPECT_TRUE(contains(refusal_of(jpeg.substr(0, length)), "x.png: ")) << length;
  }
}

TEST(Images, CorruptFilesAreRefusedWithTheReason) {
  std::string png = png_file(9, 7, smooth_pixels(9, 7));
  png[png.find("IDAT") + 10] ^= 1;
  EXPECT_TRUE(contains(refusal_of(png), "x.png: cannot decode PNG: IDAT: "));
  std::string jpeg = jpeg_file(9, 7, smooth_pixels(9, 7));
  jpeg.insert(jpeg.size() - 2, "\xff\xd8");
  EXPECT_TRUE(contains(refusal_of(jpeg), "x.png: cannot decode JPEG: "));
  EXPECT_TRUE(contains(refusal_of("GIF89a"), "neither PNG nor JPEG"));
}

TEST(Images, SizesThatAFileCannotHoldAreRefused) {
  const std::string jpeg = [] {
    std::string file = jpeg_file(8, 8, smooth_pixels(8, 8));
    const std::size_t frame = file.find("\xff\xc0");
    file.replace(frame + 5, 4, "\xff\x00\xff\x00", 4);
    return file;
  }();
  EXPECT_TRUE(contains(refusal_of(jpeg), "cannot hold an image of 65280x65280 pixels") ||
              contains(refusal_of(jpeg), "at most 268435456 pixels"));
}

Bytes resized(const Image& image, std::int64_t height, std::int64_t width, std::int64_t channels) {
  Bytes output(static_cast<std::size_t>(height * width * channels));
  resize_and_crop(image, height, width, channels, output.data());
  return output;
}

/// A grey image.
Image grey(std::int64_t width, std::int64_t height, const Bytes& values) {
  Image image{.width = width, .height = height, .rgb = {}};
  for (const std::uint8_t value : values) image.rgb.insert(image.rgb.end(), 3, value);
  return image;
}

TEST(Images, AnImageOfTheSizeIsCopied) {
  const Image image{.width = 2, .height = 2, .rgb = smooth_pixels(2, 2)};
  EXPECT_EQ(resized(image, 2, 2, 3), image.rgb);
}

TEST(Images, ALongerSideIsCutAtTheCentre) {
  EXPECT_THAT(resized(grey(6, 2, {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}), 2, 2, 1), ElementsAre(2, 3, 12, 13));
  EXPECT_THAT(resized(grey(1, 4, {0, 1, 2, 3}), 2, 1, 1), ElementsAre(1, 2));
}

TEST(Images, GrowthInterpolatesBetweenTwoPixels) {
  EXPECT_THAT(resized(grey(2, 2, {0, 255, 0, 255}), 4, 4, 1),
              ElementsAre(0, 64, 191, 255, 0, 64, 191, 255, 0, 64, 191, 255, 0, 64, 191, 255));
}

TEST(Images, ShrinkingWeighsAllPixelsInReach) {
  // Weights 3, 3, 1 and 1, 3, 3, divided by 7.
  EXPECT_THAT(resized(grey(4, 4, {0, 70, 140, 210, 0, 70, 140, 210, 0, 70, 140, 210, 0, 70, 140, 210}), 2, 2, 1),
              ElementsAre(50, 160, 50, 160));
}

TEST(Images, ResizingKeepsTheProportions) {
  // 8x4 to 2x2: shrunk to 4x2, of which the middle is taken.
  const Bytes left_to_right{0, 0, 0, 0, 100, 100, 100, 100};
  Bytes rows;
  for (int row = 0; row < 4; ++row) rows.insert(rows.end(), left_to_right.begin(), left_to_right.end());
  EXPECT_THAT(resized(grey(8, 4, rows), 2, 2, 1), ElementsAre(13, 88, 13, 88));
}

TEST(Images, GreyWeighsColoursByBrightness) {
  const Image image{.width = 3, .height = 1, .rgb = {255, 0, 0, 0, 255, 0, 0, 0, 255}};
  EXPECT_THAT(resized(image, 1, 3, 1), ElementsAre(76, 150, 29));
}

}  // namespace
}  // namespace farandole::trainer
