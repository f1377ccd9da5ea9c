// SPDX-License-Identifier: Apache-2.0
// Decoders of PNG and JPEG, and the resizing of images to the shape of a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace farandole::trainer {

/// An image of 3 bytes per pixel: red, green, blue; row by row.
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

enum class ImageFormat { kUnknown, kPng, kJpeg };

/// Number of bytes that `format_of` needs.
inline constexpr std::size_t kImageSignatureBytes = 8;
/// Format of a file with these first bytes.
ImageFormat format_of(std::span<const std::byte> first_bytes);

/// Decodes a PNG or JPEG file. Thread-safe.
/// @param name  of the file, for messages   @throws DataError  the file is truncated, corrupt, or not supported
Image decode_image(std::span<const std::byte> bytes, const std::string& name);
Image decode_png(std::span<const std::byte> bytes, const std::string& name);
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name);

/// Checks that a file of so many bytes can hold an image of this size, so that a wrong size does not take much memory.
/// @param max_pixels_per_byte  of the format   @throws DataError
void check_image_size(std::int64_t width, std::int64_t height, std::size_t file_bytes, std::int64_t max_pixels_per_byte,
                      const std::string& name);

/// Resizes `image` so that it covers height x width, cuts that size out at the centre, and writes the bytes to
/// `output`, which has room for height * width * channels. @param channels  1 or 3
void resize_and_crop(const Image& image, std::int64_t height, std::int64_t width, std::int64_t channels,
                     std::uint8_t* output);

}  // namespace farandole::trainer
