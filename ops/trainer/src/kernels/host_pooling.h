// SPDX-License-Identifier: Apache-2.0
// Pooling of images in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/images.h"
#include "vectorized.h"

namespace farandole::trainer {

template <class Scalar>
void host_max_pool(const PoolingWindows& w, std::int64_t count, const Scalar* from, Scalar* to) {
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t window = 0; window < count; ++window) {
      const Scalar* corner = from + w.input_offset(window);
      Scalar* __restrict best = to + window * w.channels;
      for (std::int64_t c = 0; c < w.channels; ++c) best[c] = corner[c];
      for (std::int64_t place = 1; place < w.size * w.size; ++place) {
        const Scalar* __restrict x = corner + w.place_offset(place);
        for (std::int64_t c = 0; c < w.channels; ++c) {
          const bool better = (x[c] > best[c]) | (x[c] != x[c]);  // NaN wins
          best[c] = better ? x[c] : best[c];
        }
      }
    }
  });
}

/// Finds the maximum again by comparing input and output, which costs less than storing its position in forward.
/// @param unassigned  scratch memory: for each channel the window's gradient; 0 once its maximum is found
template <class Scalar>
void host_max_pool_backward(const PoolingWindows& w, std::int64_t count, const Scalar* from, const Scalar* best,
                            const Scalar* gradient, Scalar* to, Scalar* unassigned) {
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t window = 0; window < count; ++window) {
      const std::int64_t corner = w.input_offset(window);
      const Scalar* __restrict y = best + window * w.channels;
      const Scalar* __restrict dy = gradient + window * w.channels;
      Scalar* __restrict left = unassigned;
      for (std::int64_t c = 0; c < w.channels; ++c) left[c] = dy[c];
      for (std::int64_t place = 0; place < w.size * w.size; ++place) {
        const std::int64_t offset = corner + w.place_offset(place);
        const Scalar* __restrict x = from + offset;
        Scalar* __restrict dx = to + offset;
        for (std::int64_t c = 0; c < w.channels; ++c) {
          const bool first = x[c] == y[c];
          const Scalar rest = left[c];
          dx[c] = first ? rest : Scalar{0};
          left[c] = first ? Scalar{0} : rest;
        }
      }
    }
  });
}

template <class Scalar>
Scalar share_of(const PoolingWindows& windows) {
  return Scalar{1} / static_cast<Scalar>(windows.size * windows.size);
}

template <class Scalar>
void host_average_pool(const PoolingWindows& w, std::int64_t count, const Scalar* from, Scalar* to) {
  const auto factor = share_of<Scalar>(w);
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t window = 0; window < count; ++window) {
      const Scalar* corner = from + w.input_offset(window);
      Scalar* __restrict sum = to + window * w.channels;
      for (std::int64_t c = 0; c < w.channels; ++c) sum[c] = 0;
      for (std::int64_t place = 0; place < w.size * w.size; ++place) {
        const Scalar* __restrict x = corner + w.place_offset(place);
        for (std::int64_t c = 0; c < w.channels; ++c) sum[c] += x[c];
      }
      for (std::int64_t c = 0; c < w.channels; ++c) sum[c] *= factor;
    }
  });
}

template <class Scalar>
void host_average_pool_backward(const PoolingWindows& w, std::int64_t count, const Scalar* gradient, Scalar* to) {
  const auto factor = share_of<Scalar>(w);
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t window = 0; window < count; ++window) {
      Scalar* corner = to + w.input_offset(window);
      const Scalar* __restrict dy = gradient + window * w.channels;
      for (std::int64_t place = 0; place < w.size * w.size; ++place) {
        Scalar* __restrict dx = corner + w.place_offset(place);
        for (std::int64_t c = 0; c < w.channels; ++c) dx[c] = dy[c] * factor;
      }
    }
  });
}

template <class Scalar>
void host_average_positions(const PositionSizes& sizes, const Scalar* from, Scalar* to) {
  const auto [samples, positions, channels] = sizes;
  const std::int64_t count = samples, places = positions, width = channels;
  std::vector<double> scratch(static_cast<std::size_t>(width));
  double* const all = scratch.data();
  vectorized([=]() FARANDOLE_INLINED {
    double* __restrict sums = all;
    for (std::int64_t sample = 0; sample < count; ++sample) {
      for (std::int64_t c = 0; c < width; ++c) sums[c] = 0;
      for (std::int64_t position = 0; position < places; ++position) {
        const Scalar* __restrict x = from + (sample * places + position) * width;
        for (std::int64_t c = 0; c < width; ++c) sums[c] += static_cast<double>(x[c]);
      }
      Scalar* __restrict y = to + sample * width;
      for (std::int64_t c = 0; c < width; ++c) y[c] = static_cast<Scalar>(sums[c] / static_cast<double>(places));
    }
  });
}

template <class Scalar>
void host_average_positions_backward(const PositionSizes& sizes, const Scalar* gradient, Scalar* to) {
  const std::int64_t rows = sizes.samples * sizes.positions, positions = sizes.positions, channels = sizes.channels;
  const auto divisor = static_cast<Scalar>(positions);
  vectorized([=]() FARANDOLE_INLINED {
    for (std::int64_t row = 0; row < rows; ++row) {
      const Scalar* __restrict dy = gradient + row / positions * channels;
      Scalar* __restrict dx = to + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) dx[c] = dy[c] / divisor;
    }
  });
}

}  // namespace farandole::trainer
