// SPDX-License-Identifier: Apache-2.0
// Decoder of JPEG by libjpeg. libjpeg reports an error by a callback that must not return, so each call of libjpeg is
// guarded by setjmp, and no object with a destructor lives between setjmp and the call.
// clang-format off
#include <cstdio>     // before jpeglib.h, which uses FILE
#include <jpeglib.h>  // before jerror.h, which uses its types
#include <jerror.h>
// clang-format on

#include <fmt/format.h>

#include <csetjmp>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"
#include "image.h"

namespace farandole::trainer {
namespace {

/// A block of 64 pixels takes at least a bit of each component's first scan; arithmetic coding can take less.
constexpr std::int64_t kMaxJpegPixelsPerByte = 1024;
/// More scans are an attack: each scan of a progressive image costs a pass over all coefficients.
constexpr int kMaxScans = 200;

class JpegReader {
 public:
  JpegReader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    decoder_.err = jpeg_std_error(&errors_);
    decoder_.client_data = this;
    errors_.error_exit = [](j_common_ptr decoder) { of(decoder).fail(); };
    errors_.emit_message = [](j_common_ptr decoder, int level) {
      if (level < 0 && !is_harmless(decoder->err->msg_code)) of(decoder).fail();
    };
    progress_.progress_monitor = [](j_common_ptr decoder) { of(decoder).check_scans(); };
  }
  ~JpegReader() { jpeg_destroy_decompress(&decoder_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Image read() {
    guard([](JpegReader& reader) { reader.read_header(); });
    check_image_size(decoder_.image_width, decoder_.image_height, bytes_.size(), kMaxJpegPixelsPerByte, name_);
    guard([](JpegReader& reader) { jpeg_start_decompress(&reader.decoder_); });
    pixels_.resize(row_bytes() * decoder_.output_height);
    guard([](JpegReader& reader) { reader.read_rows(); });
    if (decoder_.output_components == 4) convert_cmyk();
    return {.width = decoder_.output_width, .height = decoder_.output_height, .rgb = std::move(pixels_)};
  }

 private:
  static JpegReader& of(j_common_ptr decoder) { return *static_cast<JpegReader*>(decoder->client_data); }

  /// Bytes between segments, versions and transforms that libjpeg does not know: the pixels are complete.
  static bool is_harmless(int warning) {
    return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR || warning == JWRN_ADOBE_XFORM;
  }

  /// Calls `step`. @throws DataError  libjpeg has reported an error
  void guard(void (*step)(JpegReader&)) {
    if (setjmp(jump_) == 0) {
      step(*this);
      return;
    }
    throw DataError(fmt::format("{}: cannot decode JPEG: {}; the file is truncated, corrupt or of an unsupported kind",
                                name_, reason_));
  }

  [[noreturn]] void fail() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&decoder_), reason_);
    std::longjmp(jump_, 1);
  }

  void check_scans() {
    if (decoder_.input_scan_number <= kMaxScans) return;
    std::strcpy(reason_, "more scans than any encoder writes");
    std::longjmp(jump_, 1);
  }

  void read_header() {
    jpeg_create_decompress(&decoder_);
    decoder_.progress = &progress_;
    jpeg_mem_src(&decoder_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&decoder_, TRUE);
    const bool is_cmyk = decoder_.jpeg_color_space == JCS_CMYK || decoder_.jpeg_color_space == JCS_YCCK;
    decoder_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
  }

  std::size_t row_bytes() const {
    return static_cast<std::size_t>(decoder_.output_width) * static_cast<std::size_t>(decoder_.output_components);
  }

  void read_rows() {
    while (decoder_.output_scanline < decoder_.output_height) {
      JSAMPROW row = pixels_.data() + decoder_.output_scanline * row_bytes();
      jpeg_read_scanlines(&decoder_, &row, 1);
    }
    jpeg_finish_decompress(&decoder_);
  }

  /// Adobe's programs store the amounts of ink inverted.
  void convert_cmyk() {
    const bool inverted = decoder_.saw_Adobe_marker != 0;
    const auto light = [&](std::uint8_t ink) { return inverted ? ink : 255 - ink; };
    std::size_t to = 0;
    for (std::size_t from = 0; from < pixels_.size(); from += 4) {
      const int black = light(pixels_[from + 3]);
      for (std::size_t channel = 0; channel < 3; ++channel) {
        pixels_[to++] = static_cast<std::uint8_t>((light(pixels_[from + channel]) * black + 127) / 255);
      }
    }
    pixels_.resize(to);
  }

  const std::span<const std::byte> bytes_;
  const std::string& name_;
  jpeg_decompress_struct decoder_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  char reason_[JMSG_LENGTH_MAX] = {};
  std::vector<std::uint8_t> pixels_;
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  return JpegReader(bytes, name).read();
}

}  // namespace farandole::trainer
