// SPDX-License-Identifier: Apache-2.0
// Files of NumPy, mapped into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

enum class NpyType { kF4, kF8, kU1, kI4, kI8 };
/// NumPy's name: "<f4".
std::string_view name(NpyType type);

/// What the header of a file says.
struct NpyHeader {
  NpyType type = NpyType::kF4;
  Shape shape;  ///< at least one axis; every extent at least 1
  std::size_t header_bytes = 0, data_bytes = 0;
};
/// Reads the header. @param bytes  the whole file   @param name  of the file, for messages
/// @throws DataError  another format, order or type, or the file has another size than the header tells
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& name);

/// A file that is mapped into memory. Thread-safe.
class NpyFile {
 public:
  /// @throws DataError  the file cannot be opened, or as parse_npy_header
  explicit NpyFile(const std::filesystem::path& file);
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  const std::string& name() const { return name_; }
  NpyType type() const { return header_.type; }
  const Shape& shape() const { return header_.shape; }
  /// The elements, in C order.
  std::span<const std::byte> data() const { return bytes_.subspan(header_.header_bytes); }
  /// Copies elements [first, first + count) as numbers of type `To`: float, double or std::int64_t.
  template <class To>
  void copy(std::int64_t first, std::int64_t count, To* to) const;
  /// CRC-32 of the header, the size, and blocks of the data, continued from `before`.
  std::uint32_t checksum(std::uint32_t before) const;

 private:
  const std::string name_;
  std::span<const std::byte> bytes_;  // the mapping
  NpyHeader header_;
};

}  // namespace farandole::trainer
