// SPDX-License-Identifier: Apache-2.0
// Bodies for images, with channels last.
#pragma once

#include <cstdint>

#include "body_arguments.h"
#include "kernels/pooling_windows.h"
#include "kernels/strided_windows.h"

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

// Windows with stride and padding. Sizes: elements of the result, then height, width and channels of the images, size,
// stride and padding of the windows, height and width of the output.

FARANDOLE_HOST_DEVICE inline StridedWindows strided_windows_of(const Arguments& a) {
  return {a.sizes[4], a.sizes[5], a.sizes[6], a.sizes[1], a.sizes[2], a.sizes[3], a.sizes[7], a.sizes[8]};
}

/// Calls visit(window, place in the window) for each window that has this pixel, in the order of the windows. Pixels
/// are counted over all samples.
template <class Visit>
FARANDOLE_HOST_DEVICE inline void for_each_window(const StridedWindows& w, std::int64_t pixel, const Visit& visit) {
  const auto first = [&](std::int64_t at) { return at < w.size ? 0 : (at - w.size) / w.stride + 1; };
  const auto end = [&](std::int64_t at, std::int64_t extent) {
    return at / w.stride + 1 < extent ? at / w.stride + 1 : extent;
  };
  const std::int64_t row = pixel / w.width, sample = row / w.height;
  const std::int64_t x = pixel % w.width + w.padding, y = row % w.height + w.padding;
  for (std::int64_t oy = first(y); oy < end(y, w.output_height); ++oy) {
    for (std::int64_t ox = first(x); ox < end(x, w.output_width); ++ox) {
      visit((sample * w.output_height + oy) * w.output_width + ox, (y - oy * w.stride) * w.size + x - ox * w.stride);
    }
  }
}

/// Calls visit(element of the images, place in the window) for each pixel of a window inside the image, in row order.
template <class Visit>
FARANDOLE_HOST_DEVICE inline void for_each_pixel(const StridedWindows& w, std::int64_t number, std::int64_t channel,
                                                 const Visit& visit) {
  const Window window = w.window(number);
  const std::int64_t top = number / w.output_width % w.output_height * w.stride - w.padding;
  const std::int64_t left = number % w.output_width * w.stride - w.padding;
  const std::int64_t image = w.sample_of(number) * w.height;
  for (std::int64_t y = window.top; y < window.bottom; ++y) {
    for (std::int64_t x = window.left; x < window.right; ++x) {
      visit(((image + y) * w.width + x) * w.channels + channel, (y - top) * w.size + x - left);
    }
  }
}

/// Operands: patches, images. A patch is the part of an image from which an output position of a convolution is
/// computed: {size, size, channels}, 0 outside the image.
template <class T>
struct GatherPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T* images = input<T>(a, 1);
    T* patches = output<T>(a, 0);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      std::int64_t rest = i;
      const auto next = [&rest](std::int64_t extent) {
        const std::int64_t index = rest % extent;
        rest /= extent;
        return index;
      };
      const std::int64_t channel = next(w.channels), kx = next(w.size), ky = next(w.size);
      const std::int64_t ox = next(w.output_width), oy = next(w.output_height);
      const std::int64_t x = ox * w.stride - w.padding + kx, y = oy * w.stride - w.padding + ky;
      const bool is_inside = x >= 0 && x < w.width && y >= 0 && y < w.height;
      patches[i] = is_inside ? images[((rest * w.height + y) * w.width + x) * w.channels + channel] : T{0};
    }
  }
};

/// Operands: images, patches. Sets each pixel to the sum of its places in patches.
template <class T>
struct ScatterPatches {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T* patches = input<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % w.channels;
      T sum{0};
      for_each_window(w, i / w.channels, [&](std::int64_t window, std::int64_t place) {
        sum += patches[(window * w.size * w.size + place) * w.channels + channel];
      });
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: y, the pixel of each maximum in its image, x.
template <class T>
struct StridedMaxPool {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T* x = input<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t number = i / w.channels, channel = i % w.channels;
      const Window window = w.window(number);
      std::int64_t best = (w.sample_of(number) * w.height + window.top) * w.width + window.left;
      best = best * w.channels + channel;
      T value = x[best];
      for_each_pixel(w, number, channel, [&](std::int64_t element, std::int64_t) {
        const bool is_better = x[element] > value || x[element] != x[element];  // NaN wins
        value = is_better ? x[element] : value;
        best = is_better ? element : best;
      });
      output<T>(a, 0)[i] = value;
      output<std::int32_t>(a, 1)[i] = static_cast<std::int32_t>(best / w.channels % (w.height * w.width));
    }
  }
};

/// Operands: dx, the pixel of each maximum in its image, dy.
template <class T>
struct StridedMaxPoolBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const auto* places = input<std::int32_t>(a, 1);
    const T* dy = input<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t pixel = i / w.channels, of_image = pixel % (w.height * w.width);
      T sum{0};
      for_each_window(w, pixel, [&](std::int64_t window, std::int64_t) {
        const std::int64_t element = window * w.channels + i % w.channels;
        if (places[element] == of_image) sum += dy[element];
      });
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: y, x.
template <class T>
struct StridedAveragePool {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T* x = input<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      T sum{0};
      for_each_pixel(w, i / w.channels, i % w.channels, [&](std::int64_t element, std::int64_t) { sum += x[element]; });
      output<T>(a, 0)[i] = sum * (T{1} / static_cast<T>(w.window(i / w.channels).pixels()));
    }
  }
};

/// Operands: dx, dy.
template <class T>
struct StridedAveragePoolBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T* dy = input<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      T sum{0};
      for_each_window(w, i / w.channels, [&](std::int64_t window, std::int64_t) {
        sum += dy[window * w.channels + i % w.channels] * (T{1} / static_cast<T>(w.window(window).pixels()));
      });
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: y, x, weights, bias.
template <class T>
struct Depthwise {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T *x = input<T>(a, 1), *weights = input<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % w.channels;
      T sum = input<T>(a, 3)[channel];
      for_each_pixel(w, i / w.channels, channel, [&](std::int64_t element, std::int64_t place) {
        sum += x[element] * weights[place * w.channels + channel];
      });
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// Operands: dx, dy, weights.
template <class T>
struct DepthwiseBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const T *dy = input<T>(a, 1), *weights = input<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % w.channels;
      T sum{0};
      for_each_window(w, i / w.channels, [&](std::int64_t window, std::int64_t place) {
        sum += dy[window * w.channels + channel] * weights[place * w.channels + channel];
      });
      output<T>(a, 0)[i] = sum;
    }
  }
};

/// An output pixel of all samples, by its sample, row and column, so that a loop over pixels need not divide.
struct OutputPixel {
  FARANDOLE_HOST_DEVICE OutputPixel(const StridedWindows& w, std::int64_t number)
      : sample(w.sample_of(number)), y(number / w.output_width % w.output_height), x(number % w.output_width) {}
  /// Moves on by the number of pixels that made `step`.
  FARANDOLE_HOST_DEVICE void add(const StridedWindows& w, const OutputPixel& step) {
    sample += step.sample;
    y += step.y;
    x += step.x;
    if (x >= w.output_width) x -= w.output_width, ++y;
    if (y >= w.output_height) y -= w.output_height, ++sample;
  }

  std::int64_t sample, y, x;
};

/// Operands: partial sums {partials, size, size, channels} of the weights' gradients, x, dy. Sizes: partials * weights,
/// the windows, output pixels of all samples, partials. Partial sum p adds the output pixels p, p + partials, …
template <class T>
struct DepthwiseWeights {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StridedWindows w = strided_windows_of(a);
    const std::int64_t weights = w.size * w.size * w.channels;
    const OutputPixel step(w, a.sizes[10]);
    const T *images = input<T>(a, 1), *dy = input<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t channel = i % w.channels, place = i % weights / w.channels;
      const std::int64_t row = place / w.size - w.padding, column = place % w.size - w.padding;
      double sum = 0;
      OutputPixel output_pixel(w, i / weights);
      for (std::int64_t number = i / weights; number < a.sizes[9]; number += a.sizes[10], output_pixel.add(w, step)) {
        const std::int64_t y = output_pixel.y * w.stride + row, x = output_pixel.x * w.stride + column;
        if (x < 0 || x >= w.width || y < 0 || y >= w.height) continue;
        const std::int64_t pixel = (output_pixel.sample * w.height + y) * w.width + x;
        sum += static_cast<double>(images[pixel * w.channels + channel]) *
               static_cast<double>(dy[number * w.channels + channel]);
      }
      output<double>(a, 0)[i] = sum;
    }
  }
};

// Upsampling. Sizes: elements of the result, factor, width and channels of the small images. Rows are counted over all
// samples.

/// Operands: y, x.
template <class T>
struct Upsample {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t factor = a.sizes[1], width = a.sizes[2], channels = a.sizes[3];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t pixel = i / channels, y = pixel / (factor * width) / factor;
      const std::int64_t x = pixel % (factor * width) / factor;
      output<T>(a, 0)[i] = input<T>(a, 1)[(y * width + x) * channels + i % channels];
    }
  }
};

/// Operands: dx, dy.
template <class T>
struct UpsampleBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t factor = a.sizes[1], width = a.sizes[2], channels = a.sizes[3];
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t y = i / channels / width, x = i / channels % width;
      T sum{0};
      for (std::int64_t ky = 0; ky < factor; ++ky) {
        for (std::int64_t kx = 0; kx < factor; ++kx) {
          const std::int64_t pixel = (y * factor + ky) * factor * width + x * factor + kx;
          sum += input<T>(a, 1)[pixel * channels + i % channels];
        }
      }
      output<T>(a, 0)[i] = sum;
    }
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
