// SPDX-License-Identifier: Apache-2.0
// Decoder of PNG by libpng's simplified interface, which converts palettes, grey, 16 bit and interlaced images.
#include <fmt/format.h>
#include <png.h>

#include "farandole/core/error.h"
#include "image.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kMaxDeflateRatio = 1032;

/// Bits of a pixel, by the file's header. @param bytes  a file whose header libpng has accepted
std::int64_t bits_per_pixel(std::span<const std::byte> bytes) {
  constexpr std::size_t kDepth = 24, kColorType = 25;  // offsets
  const auto depth = std::to_integer<std::int64_t>(bytes[kDepth]);
  switch (std::to_integer<int>(bytes[kColorType])) {
    case PNG_COLOR_TYPE_RGB:
      return 3 * depth;
    case PNG_COLOR_TYPE_RGB_ALPHA:
      return 4 * depth;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return 2 * depth;
    default:
      return depth;
  }
}

class PngReader {
 public:
  explicit PngReader(const std::string& name) : name_(name) { image_.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image read(std::span<const std::byte> bytes) {
    check(png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size()));
    check_image_size(image_.width, image_.height, bytes.size(), 8 * kMaxDeflateRatio / bits_per_pixel(bytes), name_);
    // Without this flag libpng takes the values of 16-bit images for linear light.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    const bool has_alpha = (image_.format & PNG_FORMAT_FLAG_ALPHA) != 0;
    image_.format = has_alpha ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
    Image image{.width = image_.width, .height = image_.height, .rgb = {}};
    image.rgb.resize(PNG_IMAGE_SIZE(image_));
    check(png_image_finish_read(&image_, nullptr, image.rgb.data(), 0, nullptr));
    if (has_alpha) drop_alpha(image.rgb);
    return image;
  }

 private:
  void check(int success) const {
    if (success != 0) return;
    const std::string reason = image_.message;
    throw DataError(fmt::format("{}: cannot decode PNG: {}; the file is truncated or corrupt", name_, reason));
  }

  static void drop_alpha(std::vector<std::uint8_t>& pixels) {
    std::size_t to = 0;
    for (std::size_t from = 0; from < pixels.size(); from += 4) {
      for (std::size_t channel = 0; channel < 3; ++channel) pixels[to++] = pixels[from + channel];
    }
    pixels.resize(to);
  }

  const std::string& name_;
  png_image image_{};
};

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& name) {
  return PngReader(name).read(bytes);
}

}  // namespace farandole::trainer
