// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in host memory, alone or with a ReLU behind it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "kernels/channel_formulas.h"
#include "kernels/normalization.h"
#include "vectorized.h"

namespace farandole::trainer {

/// y = scale * x' + shift. @param lowest  smaller results become this number; NaN stays NaN
template <class Scalar>
void host_normalize(const ChannelRows<Scalar>& x, const ChannelStatistics<Scalar>& statistics,
                    const ChannelParameters<Scalar>& parameters, Scalar lowest, Scalar* y) {
  const std::int64_t count = x.rows, channels = x.channels;
  const Scalar *from = x.values, *means = statistics.mean, *inverses = statistics.inverse_deviation;
  const Scalar *scales = parameters.scale, *shifts = parameters.shift;
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict mean = means, * __restrict inverse = inverses;
    const Scalar* __restrict scale = scales, * __restrict shift = shifts;
    for (std::int64_t row = 0; row < count; ++row) {
      const Scalar* __restrict each = from + row * channels;
      Scalar* __restrict to = y + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const Scalar value = (each[c] - mean[c]) * inverse[c] * scale[c] + shift[c];
        to[c] = lowest > value ? lowest : value;
      }
    }
  });
}

/// The gradient of the output of a normalisation or, if `kRectified`, of a ReLU behind it.
template <class Scalar, bool kRectified>
struct HostSlopes {
  const Scalar* dy;
  ChannelParameters<Scalar> parameters = {};  ///< used if kRectified
};

/// The gradient of the normalisation's output at channel `c`. The mask of the ReLU is computed again from the
/// normalised value, which costs less than to read the ReLU's output. It is applied to bits: compilers turn a choice
/// between two numbers into branches, which they do not vectorise.
template <bool kRectified, class Scalar>
FARANDOLE_INLINED inline Scalar slope_of(Scalar normalized, const Scalar* scale, const Scalar* shift, std::int64_t c,
                                         Scalar gradient) {
  if constexpr (!kRectified) return gradient;
  using Bits = std::conditional_t<sizeof(Scalar) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
  const Bits mask = normalized * scale[c] + shift[c] > Scalar{0} ? -1 : 0;
  return std::bit_cast<Scalar>(static_cast<Bits>(std::bit_cast<Bits>(gradient) & mask));
}

/// Adds the sums of the slopes, then the sums of slope * x', of each channel to `sums`.
template <class Scalar, bool kRectified>
void host_add_gradient_moments(const ChannelRows<Scalar>& x, const HostSlopes<Scalar, kRectified>& slopes,
                               const ChannelStatistics<Scalar>& statistics, double* sums) {
  const std::int64_t count = x.rows, channels = x.channels;
  const Scalar *from = x.values, *means = statistics.mean, *inverses = statistics.inverse_deviation;
  const Scalar *dy = slopes.dy, *scales = slopes.parameters.scale, *shifts = slopes.parameters.shift;
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict mean = means, * __restrict inverse = inverses;
    const Scalar* __restrict scale = scales, * __restrict shift = shifts;
    double* __restrict firsts = sums, * __restrict products = sums + channels;
    for (std::int64_t row = 0; row < count; ++row) {
      const Scalar* __restrict each = from + row * channels;
      const Scalar* __restrict gradient = dy + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const Scalar normalized = (each[c] - mean[c]) * inverse[c];
        const auto slope = static_cast<double>(slope_of<kRectified>(normalized, scale, shift, c, gradient[c]));
        firsts[c] += slope;
        products[c] += slope * static_cast<double>(normalized);
      }
    }
  });
}

/// dx, from the sums of host_add_gradient_moments.
template <class Scalar, bool kRectified>
void host_propagate(Workspace& workspace, const ChannelRows<Scalar>& x, const HostSlopes<Scalar, kRectified>& slopes,
                    const ChannelStatistics<Scalar>& statistics, const Scalar* scale, const double* sums, Scalar* dx) {
  const std::int64_t count = x.rows, channels = x.channels;
  Workspace::Scope scope(workspace);
  const std::span<Scalar> factors = scope.take<Scalar>(static_cast<std::size_t>(3 * channels)).host();
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto each = gradient_factors(statistics, scale, sums, channels, c);
    factors[static_cast<std::size_t>(c)] = each.factor;
    factors[static_cast<std::size_t>(channels + c)] = each.mean_gradient;
    factors[static_cast<std::size_t>(2 * channels + c)] = each.mean_product;
  }
  const Scalar *from = x.values, *means = statistics.mean, *inverses = statistics.inverse_deviation;
  const Scalar *dy = slopes.dy, *shifts = slopes.parameters.shift;
  const Scalar* const all = factors.data();
  vectorized([=]() FARANDOLE_INLINED {
    const Scalar* __restrict mean = means, * __restrict inverse = inverses, * __restrict factor = all;
    const Scalar* __restrict mean_gradient = all + channels, * __restrict mean_product = all + 2 * channels;
    const Scalar* __restrict scales = scale, * __restrict shift = shifts;
    for (std::int64_t row = 0; row < count; ++row) {
      const Scalar* __restrict each = from + row * channels;
      const Scalar* __restrict gradient = dy + row * channels;
      Scalar* __restrict to = dx + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const Scalar normalized = (each[c] - mean[c]) * inverse[c];
        const Scalar slope = slope_of<kRectified>(normalized, scales, shift, c, gradient[c]);
        to[c] = factor[c] * (slope - mean_gradient[c] - normalized * mean_product[c]);
      }
    }
  });
}

template <class Scalar>
class HostNormalization final : public NormalizationKernels<Scalar> {
 public:
  void add_moments(Workspace& /*workspace*/, const ChannelRows<Scalar>& x, double* sums) const override {
    const auto [values, rows, channels] = x;
    const Scalar* const from = values;
    const std::int64_t count = rows, width = channels;
    vectorized([=]() FARANDOLE_INLINED {
      double* __restrict firsts = sums, * __restrict squares = sums + width;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict each = from + row * width;
        for (std::int64_t c = 0; c < width; ++c) {
          const double value = each[c];
          firsts[c] += value;
          squares[c] += value * value;
        }
      }
    });
    sums[2 * width] += static_cast<double>(count);
  }

  void use_batch(std::int64_t channels, const double* sums, double epsilon, const ChannelStatistics<Scalar>& statistics,
                 Scalar* mean, Scalar* variance) const override {
    *statistics.count = sums[2 * channels];
    for (std::int64_t c = 0; c < channels; ++c) take_batch(sums, channels, c, epsilon, statistics, mean, variance);
  }

  void use_moving(std::int64_t channels, const Scalar* mean, const Scalar* variance, double epsilon,
                  const ChannelStatistics<Scalar>& statistics) const override {
    *statistics.count = 1;
    for (std::int64_t c = 0; c < channels; ++c) set_channel(statistics, c, mean[c], variance[c], epsilon);
  }

  void normalize(const ChannelRows<Scalar>& x, const ChannelStatistics<Scalar>& statistics,
                 const ChannelParameters<Scalar>& parameters, Scalar* y) const override {
    host_normalize(x, statistics, parameters, -std::numeric_limits<Scalar>::infinity(), y);
  }

  void add_gradient_moments(Workspace& /*workspace*/, const ChannelRows<Scalar>& x, const Scalar* dy,
                            const ChannelStatistics<Scalar>& statistics, double* sums) const override {
    host_add_gradient_moments(x, HostSlopes<Scalar, false>{dy}, statistics, sums);
  }

  void store_gradients(std::int64_t channels, const double* sums, Scalar* scale, Scalar* shift) const override {
    for (std::int64_t c = 0; c < channels; ++c) {
      scale[c] = static_cast<Scalar>(sums[channels + c]);
      shift[c] = static_cast<Scalar>(sums[c]);
    }
  }

  void propagate(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                 const ChannelStatistics<Scalar>& statistics, const Scalar* scale, const double* sums,
                 Scalar* dx) const override {
    host_propagate(workspace, x, HostSlopes<Scalar, false>{dy}, statistics, scale, sums, dx);
  }
};

}  // namespace farandole::trainer
