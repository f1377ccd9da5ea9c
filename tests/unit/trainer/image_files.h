// SPDX-License-Identifier: Apache-2.0
// Writers of PNG and JPEG for tests.
#pragma once

// clang-format off
#include <cstdio>     // before jpeglib.h, which uses FILE
#include <jpeglib.h>
// clang-format on

#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace farandole::trainer::test {

/// Kind of a PNG.
struct PngKind {
  int color_type = PNG_COLOR_TYPE_RGB;
  int bit_depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
};

/// Encodes rows of pixels as they lie in the file. @param rows  height times the bytes of a row
inline std::string png_file(std::uint32_t width, std::uint32_t height, std::vector<std::uint8_t> rows,
                            const PngKind& kind = {}) {
  std::string file;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  const auto append = [](png_structp to, png_bytep bytes, std::size_t count) {
    static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<const char*>(bytes), count);
  };
  png_set_write_fn(writer, &file, append, [](png_structp) {});
  png_set_IHDR(writer, info, width, height, kind.bit_depth, kind.color_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) png_set_PLTE(writer, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  std::vector<png_bytep> pointers;
  for (std::uint32_t y = 0; y < height; ++y) pointers.push_back(rows.data() + y * (rows.size() / height));
  png_set_rows(writer, info, pointers.data());
  png_write_png(writer, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&writer, &info);
  return file;
}

/// Kind of a JPEG.
struct JpegKind {
  J_COLOR_SPACE color_space = JCS_RGB;
  int components = 3;
  int quality = 100;
  bool progressive = false;
};

/// Encodes rows of pixels.
inline std::string jpeg_file(std::uint32_t width, std::uint32_t height, std::vector<std::uint8_t> rows,
                             const JpegKind& kind = {}) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&encoder, &bytes, &count);
  encoder.image_width = width;
  encoder.image_height = height;
  encoder.input_components = kind.components;
  encoder.in_color_space = kind.color_space;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, kind.quality, TRUE);
  if (kind.progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < height) {
    JSAMPROW row = rows.data() + encoder.next_scanline * width * static_cast<std::uint32_t>(kind.components);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string file(reinterpret_cast<const char*>(bytes), count);
  jpeg_destroy_compress(&encoder);
  std::free(bytes);
  return file;
}

/// A smooth image of 3 bytes per pixel.
inline std::vector<std::uint8_t> smooth_pixels(std::uint32_t width, std::uint32_t height) {
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      pixels.push_back(static_cast<std::uint8_t>(200 * x / width));
      pixels.push_back(static_cast<std::uint8_t>(30 + 200 * y / height));
      pixels.push_back(static_cast<std::uint8_t>(100 * (x + y) / (width + height)));
    }
  }
  return pixels;
}

}  // namespace farandole::trainer::test
