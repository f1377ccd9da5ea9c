// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/trainer/checkpoint.h"

namespace farandole::trainer {

/// Content of manifest.json: state, and description of every tensor.
struct Manifest {
  struct Tensor {
    std::string name;
    Shape shape;
    std::string dtype;
    std::string crc32;
  };
  CheckpointState state;
  std::vector<Tensor> model, optimizer;
};

/// CRC-32 in hexadecimal digits.
std::string crc32_text(std::span<const std::byte> bytes);
std::string crc32_text(const BufferView& values);

/// Returns the manifest as JSON, including a checksum of all its other fields.
std::string write_manifest(const CheckpointState& state, std::span<const CheckpointTensor> model,
                           std::span<const CheckpointTensor> optimizer);
/// Parses a manifest. @param file  for messages
/// @throws DataError  the text is truncated, altered or of another format   @throws Unsupported  the format has another
/// version
Manifest parse_manifest(std::string_view text, const std::string& file);

}  // namespace farandole::trainer
