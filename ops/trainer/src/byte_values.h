// SPDX-License-Identifier: Apache-2.0
// Conversion of the bytes of images to numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/trainer/dataset.h"

namespace farandole::trainer {

/// Table of the numbers of all bytes, for each channel. Thread-safe after construction.
class ByteValues {
 public:
  /// @param normalization  empty, one entry for all channels, or one for each channel
  /// @param shape  of a sample; its last extent is the number of channels
  /// @throws InvalidArgument  another number of entries, or a deviation of 0
  ByteValues(const std::vector<Normalization>& normalization, const Shape& shape);

  /// Writes the number of each byte to `output`. The first byte belongs to channel 0.
  template <class Scalar>
  void convert(std::span<const std::uint8_t> bytes, Scalar* output) const;

  /// CRC-32 of the table, continued from `before`.
  std::uint32_t checksum(std::uint32_t before) const;

 private:
  std::vector<double> values_;  // 256 for each channel, or 256 for all
};

/// @throws InvalidArgument  there are names, but not one for each class, or a name occurs twice
void check_class_names(const std::vector<std::string>& names, std::int32_t classes);

}  // namespace farandole::trainer
