// SPDX-License-Identifier: Apache-2.0
// Windows of pixels with stride and padding: of a pooling whose windows overlap or reach over the edge of the image,
// and of a convolution.
#pragma once

#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// A window of a sample: its pixels inside the image.
struct Window {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  FARANDOLE_HOST_DEVICE std::int64_t pixels() const { return (bottom - top) * (right - left); }
};

/// Windows are counted over all samples in row order.
struct StridedWindows {
  std::int64_t size = 0, stride = 0, padding = 0;  ///< width and height of a window, in pixels
  std::int64_t height = 0, width = 0, channels = 0, output_height = 0, output_width = 0;

  FARANDOLE_HOST_DEVICE std::int64_t image_elements() const { return height * width * channels; }
  FARANDOLE_HOST_DEVICE std::int64_t count(std::int64_t samples) const {
    return samples * output_height * output_width;
  }
  FARANDOLE_HOST_DEVICE std::int64_t sample_of(std::int64_t window) const {
    return window / (output_height * output_width);
  }
  /// The window of this number. No window is empty if the padding is less than the size.
  FARANDOLE_HOST_DEVICE Window window(std::int64_t number) const {
    const std::int64_t top = number / output_width % output_height * stride - padding;
    const std::int64_t left = number % output_width * stride - padding;
    return {top > 0 ? top : 0, top + size < height ? top + size : height, left > 0 ? left : 0,
            left + size < width ? left + size : width};
  }
};

}  // namespace farandole::trainer
