// SPDX-License-Identifier: Apache-2.0
// Bodies for images, with channels last.
#pragma once

#include <cstdint>

#include "body_arguments.h"
#include "kernels/pooling_windows.h"

namespace farandole::trainer::cuda {

FARANDOLE_HOST_DEVICE inline PoolingWindows windows_of(const Arguments& a) {
  return {a.sizes[1], a.sizes[2], a.sizes[3], a.sizes[4], a.sizes[5], a.sizes[6]};
}

/// Operands: y, x. Sizes: elements of y, the members of PoolingWindows, Pooling.
template <class T>
struct Pool {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PoolingWindows w = windows_of(a);
    const bool averages = a.sizes[7] == static_cast<std::int64_t>(Pooling::kAverage);
    const std::int64_t places = w.size * w.size;
    const T* x = input<T>(a, 1);
    T* y = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T* corner = x + w.input_offset(i / w.channels) + i % w.channels;
      T result = averages ? T{0} + corner[0] : corner[0];
      for (std::int64_t place = 1; place < places; ++place) {
        const T value = corner[w.place_offset(place)];
        if (averages) {
          result += value;
        } else if (value > result || value != value) {  // NaN wins
          result = value;
        }
      }
      y[i] = averages ? result * (T{1} / static_cast<T>(places)) : result;
    }
  }
};

/// Operands: dx, x, y, dy. Sizes: as Pool's. Writes the elements inside windows.
template <class T>
struct PoolBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PoolingWindows w = windows_of(a);
    const bool averages = a.sizes[7] == static_cast<std::int64_t>(Pooling::kAverage);
    const std::int64_t places = w.size * w.size;
    const T *x = input<T>(a, 1), *y = input<T>(a, 2), *dy = input<T>(a, 3);
    T* dx = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t corner = w.input_offset(i / w.channels) + i % w.channels;
      T left = averages ? dy[i] * (T{1} / static_cast<T>(places)) : dy[i];
      for (std::int64_t place = 0; place < places; ++place) {
        const std::int64_t offset = corner + w.place_offset(place);
        if (averages) {
          dx[offset] = left;
        } else {
          const bool is_first = x[offset] == y[i];
          dx[offset] = is_first ? left : T{0};
          left = is_first ? T{0} : left;
        }
      }
    }
  }
};

/// Sizes of a convolution: sizes[1] … sizes[9].
struct PatchSizes {
  std::int64_t height, width, inputs, kernel, stride, padding, output_height, output_width;
};
FARANDOLE_HOST_DEVICE inline PatchSizes patch_sizes_of(const Arguments& a) {
  return {a.sizes[1], a.sizes[2], a.sizes[3], a.sizes[4], a.sizes[5], a.sizes[6], a.sizes[7], a.sizes[8]};
}

/// Operands: patches, images. Sizes: elements of all patches, the members of PatchSizes. A patch is the part of an
/// image from which an output position is computed: {kernel, kernel, inputs}, 0 outside the image.
template <class T>
struct GatherPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PatchSizes g = patch_sizes_of(a);
    const T* images = input<T>(a, 1);
    T* patches = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      std::int64_t rest = i;
      const auto next = [&rest](std::int64_t extent) {
        const std::int64_t index = rest % extent;
        rest /= extent;
        return index;
      };
      const std::int64_t channel = next(g.inputs), kx = next(g.kernel), ky = next(g.kernel);
      const std::int64_t ox = next(g.output_width), oy = next(g.output_height);
      const std::int64_t x = ox * g.stride - g.padding + kx, y = oy * g.stride - g.padding + ky;
      const bool is_inside = x >= 0 && x < g.width && y >= 0 && y < g.height;
      patches[i] = is_inside ? images[((rest * g.height + y) * g.width + x) * g.inputs + channel] : T{0};
    }
  }
};

/// Operands: images, patches. Sizes: elements of all images, the members of PatchSizes. Sets each pixel to the sum of
/// its places in patches, in the order of the output positions.
template <class T>
struct ScatterPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const PatchSizes g = patch_sizes_of(a);
    const T* patches = input<T>(a, 1);
    T* images = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % g.inputs, pixel = i / g.inputs;
      const std::int64_t x = pixel % g.width + g.padding, row = pixel / g.width;
      const std::int64_t y = row % g.height + g.padding, sample = row / g.height;
      T sum{0};
      for (std::int64_t oy = first_output(y, g); oy <= last_output(y, g.output_height, g); ++oy) {
        for (std::int64_t ox = first_output(x, g); ox <= last_output(x, g.output_width, g); ++ox) {
          const std::int64_t ky = y - oy * g.stride, kx = x - ox * g.stride;
          const std::int64_t position = (sample * g.output_height + oy) * g.output_width + ox;
          sum += patches[((position * g.kernel + ky) * g.kernel + kx) * g.inputs + channel];
        }
      }
      images[i] = sum;
    }
  }

 private:
  /// The first output position whose patch has coordinate `at`, which counts the padding.
  FARANDOLE_HOST_DEVICE static std::int64_t first_output(std::int64_t at, const PatchSizes& g) {
    const std::int64_t before = at - g.kernel;
    return before < 0 ? 0 : before / g.stride + 1;
  }
  FARANDOLE_HOST_DEVICE static std::int64_t last_output(std::int64_t at, std::int64_t extent, const PatchSizes& g) {
    const std::int64_t last = at / g.stride;
    return last < extent - 1 ? last : extent - 1;
  }
};

/// Operands: means, x. Sizes: means, positions, channels.
template <class T>
struct AveragePositions {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t positions = a.sizes[1], channels = a.sizes[2];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const T* x = input<T>(a, 1) + i / channels * positions * channels + i % channels;
      double sum = 0;
      for (std::int64_t position = 0; position < positions; ++position)
        sum += static_cast<double>(x[position * channels]);
      output<T>(a, 0)[i] = static_cast<T>(sum / static_cast<double>(positions));
    }
  }
};

/// Operands: dx, dy. Sizes: elements of dx, positions, channels.
template <class T>
struct AveragePositionsBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t positions = a.sizes[1], channels = a.sizes[2];
    const T divisor = static_cast<T>(positions);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      output<T>(a, 0)[i] = input<T>(a, 1)[i / channels / positions * channels + i % channels] / divisor;
    }
  }
};

}  // namespace farandole::trainer::cuda
