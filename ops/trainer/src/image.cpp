// SPDX-License-Identifier: Apache-2.0
// Resizing with a triangle filter, whose width is two input pixels where the image grows, and two output pixels where
// it shrinks. Source: Pillow, src/libImaging/Resample.c, filter BILINEAR.
#include "image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kRgb = 3;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;

/// Weights of neighbouring input pixels, whose sum is an output pixel.
struct Filter {
  std::int64_t first = 0;
  std::vector<float> weights;
};

/// Filters of output pixels [begin, begin + count) of a row that is resized from `input` to `output` pixels.
std::vector<Filter> make_filters(std::int64_t input, std::int64_t output, std::int64_t begin, std::int64_t count) {
  const double scale = static_cast<double>(input) / static_cast<double>(output), reach = std::max(scale, 1.0);
  std::vector<Filter> filters(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    Filter& filter = filters[static_cast<std::size_t>(index)];
    const double centre = (static_cast<double>(begin + index) + 0.5) * scale;
    filter.first = std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(centre - reach + 0.5)), 0);
    const auto end = std::min(static_cast<std::int64_t>(std::floor(centre + reach + 0.5)), input);
    double sum = 0;
    std::vector<double> weights;
    for (std::int64_t pixel = filter.first; pixel < end; ++pixel) {
      const double distance = std::abs((static_cast<double>(pixel) - centre + 0.5) / reach);
      weights.push_back(std::max(1 - distance, 0.0));
      sum += weights.back();
    }
    for (const double weight : weights) filter.weights.push_back(static_cast<float>(weight / sum));
  }
  return filters;
}

std::uint8_t to_byte(float value) {
  return static_cast<std::uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
}

/// Red, green and blue to one byte, with ITU-R 601's weights in units of 2^-16.
std::uint8_t to_grey(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
}

void write_pixel(const std::uint8_t* rgb, std::int64_t channels, std::uint8_t* output) {
  if (channels == 1) {
    *output = to_grey(rgb);
  } else {
    std::copy_n(rgb, kRgb, output);
  }
}

/// Extents of the resized image, of which a part is cut out.
struct Cover {
  std::int64_t height = 0, width = 0;
};

Cover cover(const Image& image, std::int64_t height, std::int64_t width) {
  // Integers, so that no rounding makes the image smaller than the part.
  if (image.width * height <= image.height * width)
    return {std::max(image.height * width / image.width, height), width};
  return {height, std::max(image.width * height / image.height, width)};
}

/// Resizes row `row` of the image horizontally. @param output  a pixel of 3 floats for each filter
void resize_row(const Image& image, std::int64_t row, const std::vector<Filter>& filters, float* output) {
  const std::uint8_t* const pixels = image.rgb.data() + row * image.width * kRgb;
  for (const Filter& filter : filters) {
    float red = 0, green = 0, blue = 0;
    const std::uint8_t* pixel = pixels + filter.first * kRgb;
    for (const float weight : filter.weights) {
      red += weight * static_cast<float>(pixel[0]);
      green += weight * static_cast<float>(pixel[1]);
      blue += weight * static_cast<float>(pixel[2]);
      pixel += kRgb;
    }
    output[0] = red, output[1] = green, output[2] = blue;
    output += kRgb;
  }
}

}  // namespace

ImageFormat format_of(std::span<const std::byte> first_bytes) {
  constexpr std::uint8_t kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, kJpeg[] = {0xff, 0xd8, 0xff};
  const auto begins_with = [&](std::span<const std::uint8_t> signature) {
    return first_bytes.size() >= signature.size() &&
           std::memcmp(first_bytes.data(), signature.data(), signature.size()) == 0;
  };
  if (begins_with(kPng)) return ImageFormat::kPng;
  return begins_with(kJpeg) ? ImageFormat::kJpeg : ImageFormat::kUnknown;
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name) {
  switch (format_of(bytes)) {
    case ImageFormat::kPng:
      return decode_png(bytes, name);
    case ImageFormat::kJpeg:
      return decode_jpeg(bytes, name);
    case ImageFormat::kUnknown:
      break;
  }
  throw DataError(fmt::format("{}: neither PNG nor JPEG; the file is corrupt or of another format", name));
}

void check_image_size(std::int64_t width, std::int64_t height, std::size_t file_bytes, std::int64_t max_pixels_per_byte,
                      const std::string& name) {
  if (width < 1 || height < 1) throw DataError(fmt::format("{}: the image has no pixels", name));
  if (height > kMaxPixels / width) {
    throw DataError(fmt::format("{}: the image has {}x{} pixels; at most {} pixels are supported", name, width, height,
                                kMaxPixels));
  }
  if (width * height / max_pixels_per_byte > static_cast<std::int64_t>(file_bytes)) {
    throw DataError(fmt::format("{}: a file of {} bytes cannot hold an image of {}x{} pixels; the file is corrupt",
                                name, file_bytes, width, height));
  }
}

void resize_and_crop(const Image& image, std::int64_t height, std::int64_t width, std::int64_t channels,
                     std::uint8_t* output) {
  const Cover covering = cover(image, height, width);
  const std::int64_t top = (covering.height - height) / 2, left = (covering.width - width) / 2;
  if (covering.height == image.height && covering.width == image.width) {
    for (std::int64_t y = 0; y < height; ++y) {
      const std::uint8_t* const row = image.rgb.data() + ((top + y) * image.width + left) * kRgb;
      for (std::int64_t x = 0; x < width; ++x)
        write_pixel(row + x * kRgb, channels, output + (y * width + x) * channels);
    }
    return;
  }
  const auto columns = make_filters(image.width, covering.width, left, width);
  const auto rows = make_filters(image.height, covering.height, top, height);
  const auto row_floats = static_cast<std::size_t>(width * kRgb);
  const std::int64_t first_row = rows.front().first;
  const std::int64_t end_row = rows.back().first + static_cast<std::int64_t>(rows.back().weights.size());
  std::vector<float> narrow(static_cast<std::size_t>(end_row - first_row) * row_floats), sums(row_floats);
  for (std::int64_t row = first_row; row < end_row; ++row) {
    resize_row(image, row, columns, narrow.data() + static_cast<std::size_t>(row - first_row) * row_floats);
  }
  for (const Filter& filter : rows) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    const float* from = narrow.data() + static_cast<std::size_t>(filter.first - first_row) * row_floats;
    for (const float weight : filter.weights) {
      for (std::size_t i = 0; i < row_floats; ++i) sums[i] += weight * from[i];
      from += row_floats;
    }
    for (std::size_t i = 0; i < row_floats; i += kRgb) {
      const std::uint8_t pixel[] = {to_byte(sums[i]), to_byte(sums[i + 1]), to_byte(sums[i + 2])};
      write_pixel(pixel, channels, output);
      output += channels;
    }
  }
}

}  // namespace farandole::trainer
