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

/// Writes `tensors` (f32 or f64) to a new file and waits until the disk has it. @throws DataError  the file cannot be
/// written
void write_safetensors(const std::filesystem::path& file, std::span<const CheckpointTensor> tensors);

/// A safetensors file in memory.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    DType dtype = DType::kF32;
    std::span<const std::byte> bytes;
  };
  /// @throws DataError  not readable, not of this format, or cut (names the first tensor that is not whole)
  explicit SafetensorsFile(const std::filesystem::path& file);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// In the order of the data.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Null if there is no tensor of that name.
  const Entry* find(const std::string& name) const;

 private:
  std::vector<std::byte> bytes_;
  std::vector<Entry> entries_;
};

}  // namespace farandole::trainer
