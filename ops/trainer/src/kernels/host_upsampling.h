// SPDX-License-Identifier: Apache-2.0
// Upsampling of images in host memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/images.h"
#include "vectorized.h"

namespace farandole::trainer {

template <class Scalar>
void host_upsample(const Upsampling& sizes, std::int64_t samples, const Scalar* input, Scalar* to) {
  const auto [factor, height, width, channels] = sizes;
  const std::int64_t row = factor * width * channels;
  for (std::int64_t y = 0; y < samples * height; ++y) {
    Scalar* const first = to;
    for (std::int64_t x = 0; x < width; ++x) {
      const Scalar* from = input + (y * width + x) * channels;
      for (std::int64_t k = 0; k < factor; ++k) to = std::copy_n(from, channels, to);
    }
    for (std::int64_t k = 1; k < factor; ++k) to = std::copy_n(first, row, to);
  }
}

template <class Scalar>
void host_upsample_backward(const Upsampling& sizes, std::int64_t samples, const Scalar* gradient, Scalar* to) {
  std::fill_n(to, sizes.input_elements(samples), Scalar{0});
  const std::int64_t factor = sizes.factor, width = sizes.width, channels = sizes.channels;
  const std::int64_t pixels = samples * factor * sizes.height * factor * width;
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      const std::int64_t y = pixel / (factor * width) / factor, x = pixel % (factor * width) / factor;
      const Scalar* __restrict dy = gradient + pixel * channels;
      Scalar* __restrict dx = to + (y * width + x) * channels;
      for (std::int64_t c = 0; c < channels; ++c) dx[c] += dy[c];
    }
  });
}

}  // namespace farandole::trainer
