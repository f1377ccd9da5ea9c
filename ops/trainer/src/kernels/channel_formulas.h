// SPDX-License-Identifier: Apache-2.0
// The formulas of batch normalisation at one channel, for hosts and devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "farandole/internal/host_device.h"
#include "kernels/channel_statistics.h"

namespace farandole::trainer {

template <class Scalar>
FARANDOLE_HOST_DEVICE inline void set_channel(const ChannelStatistics<Scalar>& statistics, std::int64_t c, double mean,
                                              double variance, double epsilon) {
  statistics.mean[c] = static_cast<Scalar>(mean);
  statistics.inverse_deviation[c] = static_cast<Scalar>(1 / std::sqrt(variance + epsilon));
}

/// Takes the statistics of channel `c` from the sums over a batch, whose number of rows is in `statistics`.
template <class Scalar>
FARANDOLE_HOST_DEVICE inline void take_batch(const double* sums, std::int64_t channels, std::int64_t c, double epsilon,
                                             const ChannelStatistics<Scalar>& statistics, Scalar* means,
                                             Scalar* variances) {
  const double count = sums[2 * channels];
  const double mean = count > 0 ? sums[c] / count : 0;
  const double difference = count > 0 ? sums[channels + c] / count - mean * mean : 0;
  // Rounding can make a difference of squares slightly negative. NaN stays NaN.
  const double variance = difference < 0 ? 0 : difference;
  set_channel(statistics, c, mean, variance, epsilon);
  means[c] = static_cast<Scalar>(mean);
  variances[c] = static_cast<Scalar>(variance * count / (count > 2 ? count - 1 : 1));
}

/// Factors of the gradient of a channel's input.
template <class Scalar>
struct ChannelFactors {
  Scalar factor, mean_gradient, mean_product;
};
template <class Scalar>
FARANDOLE_HOST_DEVICE inline ChannelFactors<Scalar> gradient_factors(const ChannelStatistics<Scalar>& statistics,
                                                                     const Scalar* scale, const double* sums,
                                                                     std::int64_t channels, std::int64_t c) {
  const double count = *statistics.count;
  return {scale[c] * statistics.inverse_deviation[c], static_cast<Scalar>(sums[c] / count),
          static_cast<Scalar>(sums[channels + c] / count)};
}

}  // namespace farandole::trainer
