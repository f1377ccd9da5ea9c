// SPDX-License-Identifier: Apache-2.0
// Pooling over windows that overlap, or that reach over the edge of the image, in host memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/strided_windows.h"
#include "vectorized.h"

namespace farandole::trainer {

template <class Scalar>
void host_strided_max_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* from, Scalar* to,
                           std::int32_t* places) {
  const StridedWindows g = windows;
  const std::int64_t count = g.count(samples);
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t number = 0; number < count; ++number) {
      const Window window = g.window(number);
      const Scalar* image = from + g.sample_of(number) * g.image_elements();
      Scalar* __restrict best = to + number * g.channels;
      std::int32_t* __restrict at = places + number * g.channels;
      const std::int64_t first = window.top * g.width + window.left;
      for (std::int64_t c = 0; c < g.channels; ++c) {
        best[c] = image[first * g.channels + c];
        at[c] = static_cast<std::int32_t>(first);
      }
      for (std::int64_t y = window.top; y < window.bottom; ++y) {
        for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
          const Scalar* __restrict x = image + pixel * g.channels;
          for (std::int64_t c = 0; c < g.channels; ++c) {
            const bool better = (x[c] > best[c]) | (x[c] != x[c]);  // NaN wins
            best[c] = better ? x[c] : best[c];
            at[c] = better ? static_cast<std::int32_t>(pixel) : at[c];
          }
        }
      }
    }
  });
}

template <class Scalar>
void host_strided_max_pool_backward(const StridedWindows& g, std::int64_t samples, const std::int32_t* places,
                                    const Scalar* gradient, Scalar* to) {
  std::fill_n(to, samples * g.image_elements(), Scalar{0});
  for (std::int64_t number = 0; number < g.count(samples); ++number) {
    const Scalar* dy = gradient + number * g.channels;
    const std::int32_t* at = places + number * g.channels;
    Scalar* dx = to + g.sample_of(number) * g.image_elements();
    for (std::int64_t c = 0; c < g.channels; ++c) dx[at[c] * g.channels + c] += dy[c];
  }
}

template <class Scalar>
void host_strided_average_pool(const StridedWindows& windows, std::int64_t samples, const Scalar* from, Scalar* to) {
  const StridedWindows g = windows;
  const std::int64_t count = g.count(samples);
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t number = 0; number < count; ++number) {
      const Window window = g.window(number);
      const Scalar* image = from + g.sample_of(number) * g.image_elements();
      const Scalar share = Scalar{1} / static_cast<Scalar>(window.pixels());
      Scalar* __restrict sum = to + number * g.channels;
      for (std::int64_t c = 0; c < g.channels; ++c) sum[c] = 0;
      for (std::int64_t y = window.top; y < window.bottom; ++y) {
        for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
          const Scalar* __restrict x = image + pixel * g.channels;
          for (std::int64_t c = 0; c < g.channels; ++c) sum[c] += x[c];
        }
      }
      for (std::int64_t c = 0; c < g.channels; ++c) sum[c] *= share;
    }
  });
}

template <class Scalar>
void host_strided_average_pool_backward(const StridedWindows& windows, std::int64_t samples, const Scalar* gradient,
                                        Scalar* to) {
  const StridedWindows g = windows;
  const std::int64_t count = g.count(samples);
  std::fill_n(to, samples * g.image_elements(), Scalar{0});
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t number = 0; number < count; ++number) {
      const Window window = g.window(number);
      Scalar* image = to + g.sample_of(number) * g.image_elements();
      const Scalar share = Scalar{1} / static_cast<Scalar>(window.pixels());
      const Scalar* __restrict dy = gradient + number * g.channels;
      for (std::int64_t y = window.top; y < window.bottom; ++y) {
        for (std::int64_t pixel = y * g.width + window.left; pixel < y * g.width + window.right; ++pixel) {
          Scalar* __restrict dx = image + pixel * g.channels;
          for (std::int64_t c = 0; c < g.channels; ++c) dx[c] += dy[c] * share;
        }
      }
    }
  });
}

}  // namespace farandole::trainer
