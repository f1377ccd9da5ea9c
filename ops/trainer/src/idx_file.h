// SPDX-License-Identifier: Apache-2.0
// Reader of the IDX format of MNIST's files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace farandole::trainer {

/// An array of unsigned bytes.
struct IdxArray {
  std::vector<std::int64_t> extents;  ///< images: {count, height, width}; labels: {count}
  std::vector<std::uint8_t> bytes;
};

/// Reads `file`, gzipped or plain. @param dimensions  expected number of extents
/// @throws DataError  the file is not readable, of another format, truncated or corrupt
IdxArray read_idx_file(const std::filesystem::path& file, int dimensions);

}  // namespace farandole::trainer
