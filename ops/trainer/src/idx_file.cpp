// SPDX-License-Identifier: Apache-2.0
// IDX: two zero bytes, the type (8: unsigned byte), the number of dimensions, each extent as a big-endian u32, the
// data. Source: LeCun, Cortes, Burges, "The MNIST database", file formats.
#include "idx_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kMaxArrayBytes = std::int64_t{1} << 36;  // bytes; a header that announces more is wrong

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, CloseGzip>;

std::string describe_gzip_error(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) return std::strerror(errno);
  if (code == Z_OK || code == Z_STREAM_END) return "end of file";
  return text;
}

/// Appends up to `limit` bytes of the file to `bytes`. Returns the reason if the file ends earlier; empty otherwise.
std::string read_more(gzFile file, std::int64_t limit, std::vector<std::uint8_t>& bytes) {
  constexpr std::int64_t kChunk = 1 << 16;
  while (limit > 0) {
    const auto wanted = static_cast<unsigned>(std::min(limit, kChunk));
    const std::size_t before = bytes.size();
    bytes.resize(before + wanted);
    const int got = gzread(file, bytes.data() + before, wanted);
    bytes.resize(before + static_cast<std::size_t>(std::max(got, 0)));
    if (got < static_cast<int>(wanted)) return describe_gzip_error(file);
    limit -= got;
  }
  return {};
}

}  // namespace

IdxArray read_idx_file(const std::filesystem::path& file, int dimensions) {
  GzipFile input(gzopen(file.c_str(), "rb"));
  if (!input) throw DataError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  gzbuffer(input.get(), 1 << 17);

  std::vector<std::uint8_t> header;
  const std::int64_t header_bytes = 4 + 4 * dimensions;
  const std::string cut = read_more(input.get(), header_bytes, header);
  if (!cut.empty()) {
    throw DataError(fmt::format("{}: expected a header of {} bytes, found {} ({}); the file is cut or corrupt",
                                file.string(), header_bytes, header.size(), cut));
  }
  if (header[0] != 0 || header[1] != 0 || header[2] != 8 || header[3] != dimensions) {
    throw DataError(
        fmt::format("{}: not an IDX file of unsigned bytes with {} dimensions: expected to begin with 0000080{}, found "
                    "{:02x}{:02x}{:02x}{:02x}",
                    file.string(), dimensions, dimensions, header[0], header[1], header[2], header[3]));
  }
  IdxArray array;
  std::int64_t expected = 1;
  for (int dimension = 0; dimension < dimensions; ++dimension) {
    std::int64_t extent = 0;
    const std::size_t first_byte = 4 + 4 * static_cast<std::size_t>(dimension);
    for (std::size_t byte = 0; byte < 4; ++byte) extent = extent << 8 | header[first_byte + byte];
    if (extent == 0 || extent > kMaxArrayBytes / expected) {
      throw DataError(fmt::format("{}: dimension {} is {}; the file is corrupt", file.string(), dimension, extent));
    }
    array.extents.push_back(extent);
    expected *= extent;
  }
  // Reading one byte more than expected finds trailing data, and makes zlib check the checksum at the end of the file.
  const std::string end = read_more(input.get(), expected + 1, array.bytes);
  const auto found = static_cast<std::int64_t>(array.bytes.size());
  if (found != expected || end != "end of file") {
    throw DataError(fmt::format("{}: expected {} bytes of data, found {}{}{}; the file is cut or corrupt",
                                file.string(), expected, found > expected ? "more than " : "",
                                std::min(found, expected), end.empty() ? "" : fmt::format(" ({})", end)));
  }
  return array;
}

}  // namespace farandole::trainer
