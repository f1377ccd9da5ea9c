// SPDX-License-Identifier: Apache-2.0
// Batch normalisation on a device.
#pragma once

#include <cstdint>

#include "device_sums.h"
#include "kernels/normalization.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

template <class Scalar>
class DeviceNormalization final : public NormalizationKernels<Scalar> {
 public:
  /// @param launcher  outlives this object
  explicit DeviceNormalization(const Launcher& launcher) : launcher_(launcher) {}

  void add_moments(Workspace& workspace, const ChannelRows<Scalar>& x, double* sums) const override {
    add_moments_of(workspace, x, nullptr, {}, sums);
    run(Kernel::kAddNumber, 1, {writes(sums + 2 * x.channels, 1)}, {}, {static_cast<double>(x.rows)});
  }
  void use_batch(std::int64_t channels, const double* sums, double epsilon, const ChannelStatistics<Scalar>& s,
                 Scalar* mean, Scalar* variance) const override {
    run(Kernel::kUseBatch, channels,
        {writes(s.mean, channels), writes(s.inverse_deviation, channels), writes(s.count, 1), writes(mean, channels),
         writes(variance, channels), reads(sums, 2 * channels + 1)},
        {channels}, {epsilon});
  }
  void use_moving(std::int64_t channels, const Scalar* mean, const Scalar* variance, double epsilon,
                  const ChannelStatistics<Scalar>& s) const override {
    run(Kernel::kUseMoving, channels,
        {writes(s.mean, channels), writes(s.inverse_deviation, channels), writes(s.count, 1), reads(mean, channels),
         reads(variance, channels)},
        {channels}, {epsilon});
  }
  void normalize(const ChannelRows<Scalar>& x, const ChannelStatistics<Scalar>& s,
                 const ChannelParameters<Scalar>& parameters, Scalar* y) const override {
    const std::int64_t count = x.rows * x.channels;
    run(Kernel::kNormalize, count,
        {writes(y, count), reads(x.values, count), of_channels(s.mean, x), of_channels(s.inverse_deviation, x),
         of_channels(parameters.scale, x), of_channels(parameters.shift, x)},
        {count, x.channels});
  }
  void add_gradient_moments(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                            const ChannelStatistics<Scalar>& s, double* sums) const override {
    add_moments_of(workspace, x, dy, s, sums);
  }
  void store_gradients(std::int64_t channels, const double* sums, Scalar* scale, Scalar* shift) const override {
    run(Kernel::kStoreGradients, channels,
        {writes(scale, channels), writes(shift, channels), reads(sums, 2 * channels)}, {channels});
  }
  void propagate(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                 const ChannelStatistics<Scalar>& s, const Scalar* scale, const double* sums,
                 Scalar* dx) const override {
    Workspace::Scope scope(workspace);
    const std::int64_t count = x.rows * x.channels, factors = 3 * x.channels;
    Scalar* const all_factors = scope.take<Scalar>(static_cast<std::size_t>(factors)).data();
    run(Kernel::kGradientFactors, x.channels,
        {writes(all_factors, factors), of_channels(scale, x), reads(sums, 2 * x.channels), of_channels(s.mean, x),
         of_channels(s.inverse_deviation, x), reads(s.count, 1)},
        {x.channels});
    run(Kernel::kNormalizeBackward, count,
        {writes(dx, count), reads(x.values, count), reads(dy, count), of_channels(s.mean, x),
         of_channels(s.inverse_deviation, x), reads(all_factors, factors)},
        {count, x.channels});
  }

 private:
  static farandole::cuda::Operand of_channels(const Scalar* values, const ChannelRows<Scalar>& x) {
    return reads(values, x.channels);
  }
  void run(Kernel kernel, std::int64_t threads, std::initializer_list<farandole::cuda::Operand> operands,
           std::initializer_list<std::int64_t> sizes, std::initializer_list<double> numbers = {}) const {
    launcher_.launch<Scalar>(kernel, threads, operands, sizes, numbers);
  }

  /// Adds the sums of each channel, in two stages.
  void add_moments_of(Workspace& workspace, const ChannelRows<Scalar>& x, const Scalar* dy,
                      const ChannelStatistics<Scalar>& s, double* sums) const {
    if (x.rows == 0) return;
    const std::int64_t partials = partials_of(x.rows, x.channels);
    const std::int64_t count = x.rows * x.channels, columns = 2 * x.channels;
    Workspace::Scope scope(workspace);
    double* const partial = scope.take<double>(static_cast<std::size_t>(partials * columns)).data();
    run(Kernel::kChannelMoments, partials * x.channels,
        {writes(partial, partials * columns), reads(x.values, count), reads(dy, count),
         of_channels(static_cast<const Scalar*>(s.mean), x), of_channels(s.inverse_deviation, x)},
        {partials * x.channels, x.rows, partials, x.channels});
    run(Kernel::kAddPartials, columns, {writes(sums, columns), reads(partial, partials * columns)},
        {columns, partials});
  }

  const Launcher& launcher_;
};

}  // namespace farandole::trainer::cuda
