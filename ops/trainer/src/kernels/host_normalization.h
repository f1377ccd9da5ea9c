// SPDX-License-Identifier: Apache-2.0
// Batch normalisation in host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/channel_formulas.h"
#include "kernels/normalization.h"
#include "vectorized.h"

namespace farandole::trainer {

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
    const std::int64_t count = x.rows, channels = x.channels;
    const Scalar *from = x.values, *means = statistics.mean, *inverses = statistics.inverse_deviation;
    const Scalar *scales = parameters.scale, *shifts = parameters.shift;
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses;
      const Scalar* __restrict scale = scales, * __restrict shift = shifts;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict each = from + row * channels;
        Scalar* __restrict to = y + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) to[c] = (each[c] - mean[c]) * inverse[c] * scale[c] + shift[c];
      }
    });
  }

  void add_gradient_moments(Workspace& /*workspace*/, const ChannelRows<Scalar>& x, const Scalar* dy,
                            const ChannelStatistics<Scalar>& statistics, double* sums) const override {
    const std::int64_t count = x.rows, channels = x.channels;
    const Scalar *from = x.values, *means = statistics.mean, *inverses = statistics.inverse_deviation;
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses;
      double* __restrict firsts = sums, * __restrict products = sums + channels;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict each = from + row * channels;
        const Scalar* __restrict slope = dy + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          firsts[c] += static_cast<double>(slope[c]);
          products[c] += static_cast<double>(slope[c]) * static_cast<double>((each[c] - mean[c]) * inverse[c]);
        }
      }
    });
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
    const Scalar* const all = factors.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses, * __restrict factor = all;
      const Scalar* __restrict mean_gradient = all + channels, * __restrict mean_product = all + 2 * channels;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict each = from + row * channels;
        const Scalar* __restrict slope = dy + row * channels;
        Scalar* __restrict to = dx + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          const Scalar normalized = (each[c] - mean[c]) * inverse[c];
          to[c] = factor[c] * (slope[c] - mean_gradient[c] - normalized * mean_product[c]);
        }
      }
    });
  }
};

}  // namespace farandole::trainer
