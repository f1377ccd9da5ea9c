// SPDX-License-Identifier: Apache-2.0
// Bodies of normalisations. Sums over rows have partial sums: partial sum p adds the rows p, p + partials, …
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/channel_formulas.h"
#include "kernels/normalization_sets.h"

namespace farandole::trainer::cuda {

struct Moments {
  double first = 0, second = 0;
};

/// Sets operand 0, partial sums {partials, 2, channels}. Sizes: partials * channels, rows, partials.
/// @param add  add(row, channel, moments) adds an element
template <class AddElement>
FARANDOLE_HOST_DEVICE inline void sum_moments(const Arguments& a, Share share, std::int64_t channels,
                                              const AddElement& add) {
  for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
    Moments moments;
    for (std::int64_t row = i / channels; row < a.sizes[1]; row += a.sizes[2]) add(row, i % channels, moments);
    double* sums = output<double>(a, 0) + i / channels * 2 * channels + i % channels;
    sums[0] = moments.first;
    sums[channels] = moments.second;
  }
}

/// Operands: partial sums, x, and for gradients dy, means and inverse deviations, else null. Sizes: as sum_moments,
/// then channels.
template <class T>
struct ChannelMoments {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[3];
    const T *x = input<T>(a, 1), *dy = input<T>(a, 2), *mean = input<T>(a, 3), *inverse = input<T>(a, 4);
    sum_moments(a, share, channels, [=](std::int64_t row, std::int64_t c, Moments& moments) {
      const T value = x[row * channels + c];
      if (dy == nullptr) {
        moments.first += static_cast<double>(value);
        moments.second += static_cast<double>(value) * static_cast<double>(value);
      } else {
        const auto slope = static_cast<double>(dy[row * channels + c]);
        moments.first += slope;
        moments.second += slope * static_cast<double>((value - mean[c]) * inverse[c]);
      }
    });
  }
};

template <class T>
FARANDOLE_HOST_DEVICE inline ChannelStatistics<T> statistics_of(const Arguments& a, int operand) {
  return {output<T>(a, operand), output<T>(a, operand + 1), output<double>(a, operand + 2)};
}

/// Operands: means, inverse deviations, count, batch means, batch variances, sums. Sizes: channels. Numbers: epsilon.
template <class T>
struct UseBatch {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[0];
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 0);
    const auto* sums = input<double>(a, 5);
    if (share.first == 0) *statistics.count = sums[2 * channels];
    for (std::int64_t c = share.first; c < channels; c += share.stride) {
      take_batch(sums, channels, c, a.numbers[0], statistics, output<T>(a, 3), output<T>(a, 4));
    }
  }
};

/// Operands: means, inverse deviations, count, moving means, moving variances. Sizes: channels. Numbers: epsilon.
template <class T>
struct UseMoving {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 0);
    if (share.first == 0) *statistics.count = 1;
    for (std::int64_t c = share.first; c < a.sizes[0]; c += share.stride) {
      set_channel(statistics, c, static_cast<double>(input<T>(a, 3)[c]), static_cast<double>(input<T>(a, 4)[c]),
                  a.numbers[0]);
    }
  }
};

/// Operands: y, x, means, inverse deviations, scale, shift. Sizes: elements, channels.
template <class T>
struct Normalize {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const T *x = input<T>(a, 1), *mean = input<T>(a, 2), *inverse = input<T>(a, 3);
    const T *scale = input<T>(a, 4), *shift = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % a.sizes[1];
      output<T>(a, 0)[i] = (x[i] - mean[c]) * inverse[c] * scale[c] + shift[c];
    }
  }
};

/// Operands: gradients of scale, gradients of shift or null, sums. Sizes: channels.
template <class T>
struct StoreGradients {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const auto* sums = input<double>(a, 2);
    for (std::int64_t c = share.first; c < a.sizes[0]; c += share.stride) {
      output<T>(a, 0)[c] = static_cast<T>(sums[a.sizes[0] + c]);
      if (a.operands[1].address != nullptr) output<T>(a, 1)[c] = static_cast<T>(sums[c]);
    }
  }
};

/// Operands: {factors, mean gradients, mean products}, scale, sums, means, inverse deviations, count. Sizes: channels.
template <class T>
struct GradientFactors {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[0];
    const ChannelStatistics<T> statistics = statistics_of<T>(a, 3);
    T* factors = output<T>(a, 0);
    for (std::int64_t c = share.first; c < channels; c += share.stride) {
      const auto each = gradient_factors(statistics, input<T>(a, 1), input<double>(a, 2), channels, c);
      factors[c] = each.factor;
      factors[channels + c] = each.mean_gradient;
      factors[2 * channels + c] = each.mean_product;
    }
  }
};

/// Operands: dx, x, dy, means, inverse deviations, the result of GradientFactors. Sizes: elements, channels.
template <class T>
struct NormalizeBackward {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const std::int64_t channels = a.sizes[1];
    const T *x = input<T>(a, 1), *dy = input<T>(a, 2), *mean = input<T>(a, 3), *inverse = input<T>(a, 4);
    const T* factors = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t c = i % channels;
      const T normalized = (x[i] - mean[c]) * inverse[c];
      output<T>(a, 0)[i] = factors[c] * (dy[i] - factors[channels + c] - normalized * factors[2 * channels + c]);
    }
  }
};

// Normalisation inside samples.

/// The members of NormalizationSets, from sizes[first] on.
FARANDOLE_HOST_DEVICE inline NormalizationSets sets_of(const Arguments& a, int first) {
  return {a.sizes[first], a.sizes[first + 1], a.sizes[first + 2], a.sizes[first + 3]};
}

/// Operands: means, inverse deviations, x. Sizes: sets, the members of NormalizationSets, 1 if centred. Numbers:
/// epsilon.
template <class T>
struct MeasureSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    for (std::int64_t set = share.first; set < a.sizes[0]; set += share.stride) {
      const T* values = input<T>(a, 2) + sets.offset(set);
      double mean = 0, squares = 0;
      if (a.sizes[5] == 1) {
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          for (std::int64_t i = 0; i < sets.width; ++i) mean += static_cast<double>(values[row * sets.channels + i]);
        }
        mean /= sets.count();
      }
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const double deviation = static_cast<double>(values[row * sets.channels + i]) - mean;
          squares += deviation * deviation;
        }
      }
      output<T>(a, 0)[set] = static_cast<T>(mean);
      output<T>(a, 1)[set] = static_cast<T>(1 / std::sqrt(squares / sets.count() + a.numbers[0]));
    }
  }
};

/// Operands: y, x, means, inverse deviations, scale or null, shift or null. Sizes: elements, the members of
/// NormalizationSets.
template <class T>
struct NormalizeSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    const T *x = input<T>(a, 1), *scale = input<T>(a, 4), *shift = input<T>(a, 5);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride) {
      const std::int64_t set = sets.set_of(i), c = i % sets.channels;
      const T normalized = (x[i] - input<T>(a, 2)[set]) * input<T>(a, 3)[set];
      output<T>(a, 0)[i] = normalized * (scale == nullptr ? T{1} : scale[c]) + (shift == nullptr ? T{0} : shift[c]);
    }
  }
};

/// Operands: partial sums of dy and of dy * x', x, dy, means, inverse deviations. Sizes: as sum_moments, with rows of
/// all channels, then the members of NormalizationSets.
template <class T>
struct SetMoments {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 3);
    const T *x = input<T>(a, 1), *dy = input<T>(a, 2), *mean = input<T>(a, 3), *inverse = input<T>(a, 4);
    sum_moments(a, share, sets.channels, [=](std::int64_t row, std::int64_t c, Moments& moments) {
      const std::int64_t element = row * sets.channels + c, set = sets.set_of(element);
      const auto slope = static_cast<double>(dy[element]);
      moments.first += slope;
      moments.second += slope * static_cast<double>((x[element] - mean[set]) * inverse[set]);
    });
  }
};

/// Operands: dx, x, dy, means, inverse deviations, scale or null. Sizes: sets, the members of NormalizationSets, 1 if
/// centred.
template <class T>
struct PropagateSets {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const NormalizationSets sets = sets_of(a, 1);
    for (std::int64_t set = share.first; set < a.sizes[0]; set += share.stride) {
      const std::int64_t offset = sets.offset(set);
      const T *x = input<T>(a, 1) + offset, *dy = input<T>(a, 2) + offset;
      const T mean = input<T>(a, 3)[set], inverse = input<T>(a, 4)[set];
      const T* scale = input<T>(a, 5) == nullptr ? nullptr : input<T>(a, 5) + sets.first_channel(set);
      double sum = 0, products = 0;
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const std::int64_t at = row * sets.channels + i;
          const auto slope = static_cast<double>(scale == nullptr ? dy[at] : dy[at] * scale[i]);
          sum += slope;
          products += slope * static_cast<double>((x[at] - mean) * inverse);
        }
      }
      const auto mean_gradient = static_cast<T>(a.sizes[5] == 1 ? sum / sets.count() : 0);
      const auto mean_product = static_cast<T>(products / sets.count());
      for (std::int64_t row = 0; row < sets.rows; ++row) {
        for (std::int64_t i = 0; i < sets.width; ++i) {
          const std::int64_t at = row * sets.channels + i;
          const T slope = scale == nullptr ? dy[at] : dy[at] * scale[i];
          output<T>(a, 0)[offset + at] = inverse * (slope - mean_gradient - (x[at] - mean) * inverse * mean_product);
        }
      }
    }
  }
};

}  // namespace farandole::trainer::cuda
