// SPDX-License-Identifier: Apache-2.0
// What a checkpoint says of itself.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/trainer/checkpoint.h"

namespace farandole::trainer {

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

/// CRC-32, in hexadecimal digits.
std::string crc32_text(std::span<const std::byte> bytes);
std::string crc32_text(const BufferView& values);

std::string write_manifest(const CheckpointState& state, std::span<const CheckpointTensor> model,
                           std::span<const CheckpointTensor> optimizer);
/// @param file  for messages   @throws DataError  cut, altered, or of another format   @throws Unsupported  of another
/// version
Manifest parse_manifest(std::string_view text, const std::string& file);

}  // namespace farandole::trainer
