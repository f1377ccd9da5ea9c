// SPDX-License-Identifier: Apache-2.0
// The safetensors format: named tensors in one file, readable from Python with `safetensors.numpy.load_file`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "farandole/trainer/checkpoint.h"

namespace farandole::trainer {

/// Writes `tensors` (f32 or f64) to a new file, and synchronises it with the disk. @throws DataError  the file cannot
/// be written
void write_safetensors(const std::filesystem::path& file, std::span<const CheckpointTensor> tensors);

/// A safetensors file in memory.
class SafetensorsFile {
 public:
  /// A tensor of the file; `bytes` points into the SafetensorsFile.
  struct Entry {
    std::string name;
    Shape shape;
    DType dtype = DType::kF32;
    std::span<const std::byte> bytes;
  };
  /// @throws DataError  the file is not readable, of another format, or truncated (names the first incomplete tensor)
  explicit SafetensorsFile(const std::filesystem::path& file);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// All tensors, in the order of their data.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The tensor of this name; null if there is none.
  const Entry* find(const std::string& name) const;

 private:
  std::vector<std::byte> bytes_;
  std::vector<Entry> entries_;
};

}  // namespace farandole::trainer
