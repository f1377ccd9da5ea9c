// SPDX-License-Identifier: Apache-2.0
// The windows of a pooling. They do not overlap; rows and columns left over at the right and bottom edge belong to
// none.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

enum class Pooling : std::uint8_t { kMaximum, kAverage };

/// Shapes of a pooling, and positions of its windows. Windows are counted over all samples in row order.
struct PoolingWindows {
  std::int64_t size = 0;  ///< width and height of a window, in pixels
  std::int64_t height = 0, width = 0, channels = 0, output_height = 0, output_width = 0;

  /// Offset of a window's first pixel in the input, in elements.
  FARANDOLE_HOST_DEVICE std::int64_t input_offset(std::int64_t window) const {
    const std::int64_t x = window % output_width, row = window / output_width;
    const std::int64_t y = row % output_height, sample = row / output_height;
    return ((sample * height + y * size) * width + x * size) * channels;
  }
  /// Offset of pixel `place` of a window from its first pixel, in elements. @param place  0 … size * size - 1
  FARANDOLE_HOST_DEVICE std::int64_t place_offset(std::int64_t place) const {
    return (place / size * width + place % size) * channels;
  }
  FARANDOLE_HOST_DEVICE std::int64_t count(std::int64_t samples) const {
    return samples * output_height * output_width;
  }
  std::int64_t input_elements(std::int64_t samples) const { return samples * height * width * channels; }
  bool covers_input() const { return height % size == 0 && width % size == 0; }
};

}  // namespace farandole::trainer
