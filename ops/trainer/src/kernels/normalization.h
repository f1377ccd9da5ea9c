// SPDX-License-Identifier: Apache-2.0
// The computations of batch normalisation, part of Kernels. The formulas are at the layer, batch_normalization.cpp.
#pragma once

#include <cstdint>

#include "farandole/trainer/execution.h"
#include "kernels/channel_statistics.h"

namespace farandole::trainer {

/// Values of a batch by channel: `rows` rows of `channels`.
template <class Scalar>
struct ChannelRows {
  const Scalar* values = nullptr;
  std::int64_t rows = 0, channels = 0;
};

/// The learned parameters, a number for each channel.
template <class Scalar>
struct ChannelParameters {
  const Scalar *scale = nullptr, *shift = nullptr;
};

/// As Kernels: all addresses lie in one memory. Sums are in double, in an order that depends on the sizes only.
template <class Scalar>
class NormalizationKernels {
 public:
  virtual ~NormalizationKernels() = default;
  /// Adds the sums of x, then the sums of x * x, of each channel to `sums`, and the number of rows after them.
  virtual void add_moments(Workspace& workspace, const ChannelRows<Scalar>& x, double* sums) const = 0;
  /// Takes the statistics of a batch from the sums of `add_moments`; also stores mean and unbiased variance.
  virtual void use_batch(std::int64_t channels, const double* sums, double epsilon,
                         const ChannelStatistics<Scalar>& statistics, Scalar* mean, Scalar* variance) const = 0;
  /// Takes the statistics from moving averages.
  virtual void use_moving(std::int64_t channels, const Scalar* mean, const Scalar* variance, double epsilon,
                          const ChannelStatistics<Scalar>& statistics) const = 0;
  /// y = scale * x' + shift, with the normalised values x' = (x - mean) * inverse_deviation
  virtual void normalize(const ChannelRows<Scalar>& x, const ChannelStatistics<Scalar>& statistics,
                         const ChannelParameters<Scalar>& parameters, Scalar* y) const = 0;
  /// Adds the sums of dy, then the sums of dy * x', of each channel to `sums`.
  virtual void add_gradient_moments(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                                    const ChannelStatistics<Scalar>& statistics, double* sums) const = 0;
  /// Stores the gradients of the parameters, which are the sums of `add_gradient_moments`.
  virtual void store_gradients(std::int64_t channels, const double* sums, Scalar* scale, Scalar* shift) const = 0;
  /// dx = scale * inverse_deviation * (dy - sum(dy) / count - x' * sum(dy * x') / count)
  virtual void propagate(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                         const ChannelStatistics<Scalar>& statistics, const Scalar* scale, const double* sums,
                         Scalar* dx) const = 0;
};

}  // namespace farandole::trainer
