// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over all axes but the channels.
//   forward    x' = (x - mean) / sqrt(variance + epsilon),  y = scale * x' + shift
//   backward   dx = scale / sqrt(variance + epsilon) * (dy - mean(dy) - x' * mean(dy * x'))
// Means are over this replica's batch, or (synchronised) over the batches of all replicas. The synchronised form takes
// an allreduce of [sum(x), sum(x^2), count] in forward and an allreduce of [sum(dy), sum(dy * x')] in backward. All
// sums are in double, in the order of the rows. Source: Ioffe, Szegedy, ICML 2015.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "scratch.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

/// Adds to to[c] the sum of x over rows, and to to[channels + c] the sum of x * x.
template <class Scalar>
void add_moments(const Scalar* values, std::int64_t rows, std::int64_t channels, double* to) {
  vectorized([=]() FARANDOLE_INLINED {
    double* __restrict sums = to, * __restrict squares = to + channels;
    for (std::int64_t row = 0; row < rows; ++row) {
      const Scalar* __restrict x = values + row * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const double value = x[c];
        sums[c] += value;
        squares[c] += value * value;
      }
    }
  });
}

template <class Scalar>
class BatchNormalization final : public Layer<Scalar> {
 public:
  explicit BatchNormalization(const BatchNormalizationOptions& options) : options_(options) {
    if (!(options.epsilon > 0) || !(options.momentum >= 0 && options.momentum <= 1)) {
      throw InvalidArgument(
          fmt::format("batch_normalization: epsilon must be positive and momentum in [0, 1], got {} and {}",
                      options.epsilon, options.momentum));
    }
  }

  std::string name() const override {
    return options_.synchronized ? "batch_normalization, synchronized" : "batch_normalization";
  }

  Shape prepare(const Shape& input) override {
    if (input.empty() || elements(input) < 1) {
      throw InvalidArgument(fmt::format("{}: the input {} has no channels", name(), trainer::describe(input)));
    }
    channels_ = input.back();
    rows_per_sample_ = elements(input) / channels_;
    mean_.resize(static_cast<std::size_t>(channels_));
    inverse_deviation_.resize(mean_.size());
    return input;
  }

  std::vector<ParameterSpec> parameters() const override {
    return {{"scale", {channels_}, Initial::kOne, 1, false}, {"shift", {channels_}, Initial::kZero, 1, false}};
  }
  std::vector<StatisticSpec> statistics() const override {
    return {{"mean", channels_, 0, options_.momentum}, {"variance", channels_, 1, options_.momentum}};
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass& pass, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    if (pass.training) {
      use_batch(pass, input);
    } else {
      use_moving();
    }
    normalize(input, output);
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    Workspace::Scope scope(pass.execution.workspace());
    const std::span<double> sums = take_zeros<double>(scope, mean_.size() * 2);
    add_gradient_sums(input, output_gradient, sums.data());
    const std::span<Scalar> scale_gradient = memory_.gradients[0].host(), shift_gradient = memory_.gradients[1].host();
    for (std::size_t c = 0; c < mean_.size(); ++c) {
      scale_gradient[c] = static_cast<Scalar>(sums[mean_.size() + c]);
      shift_gradient[c] = static_cast<Scalar>(sums[c]);
    }
    // The allreduce needs every replica, even a replica that needs no input gradient.
    if (is_synchronized(pass)) pass.replicas->allreduce(sums, ReduceOp::kSum);
    if (input_gradient == nullptr || input.samples() == 0) return;
    // In evaluation the statistics are constants.
    if (!pass.training) std::ranges::fill(sums, 0);
    const std::span<Scalar> factors = scope.take<Scalar>(3 * mean_.size()).host();
    compute_factors(sums, factors);
    propagate(input, output_gradient, factors.data(), *input_gradient);
  }

 private:
  bool is_synchronized(const Pass& pass) const {
    return options_.synchronized && pass.training && pass.replicas != nullptr && pass.replicas->size() > 1;
  }
  std::int64_t rows(const Tensor<Scalar>& tensor) const { return tensor.samples() * rows_per_sample_; }

  void use_batch(const Pass& pass, const Tensor<Scalar>& input) {
    const std::size_t channels = mean_.size();
    Workspace::Scope scope(pass.execution.workspace());
    const std::span<double> sums = take_zeros<double>(scope, 2 * channels + 1);
    add_moments(input.data(), rows(input), channels_, sums.data());
    sums.back() = static_cast<double>(rows(input));
    if (is_synchronized(pass)) pass.replicas->allreduce(sums, ReduceOp::kSum);
    count_ = sums.back();
    const std::span<Scalar> means = memory_.batch_statistics[0].host();
    const std::span<Scalar> variances = memory_.batch_statistics[1].host();
    for (std::size_t c = 0; c < channels; ++c) {
      const double mean = count_ > 0 ? sums[c] / count_ : 0;
      const double variance = count_ > 0 ? nonnegative(sums[channels + c] / count_ - mean * mean) : 0;
      set(c, mean, variance);
      means[c] = static_cast<Scalar>(mean);
      variances[c] = static_cast<Scalar>(variance * count_ / std::max(count_ - 1, 1.0));
    }
  }

  void use_moving() {
    const std::span<const Scalar> means = memory_.moving_statistics[0].host();
    const std::span<const Scalar> variances = memory_.moving_statistics[1].host();
    for (std::size_t c = 0; c < mean_.size(); ++c) set(c, means[c], variances[c]);
    count_ = 1;
  }

  /// Clamps at 0: rounding can make a difference of squares slightly negative. NaN stays NaN.
  static double nonnegative(double value) { return value < 0 ? 0 : value; }

  void set(std::size_t channel, double mean, double variance) {
    mean_[channel] = static_cast<Scalar>(mean);
    inverse_deviation_[channel] = static_cast<Scalar>(1 / std::sqrt(variance + options_.epsilon));
  }

  void normalize(const Tensor<Scalar>& input, Tensor<Scalar>& output) const {
    const std::int64_t count = rows(input), channels = channels_;
    const Scalar *from = input.data(), *means = mean_.data(), *inverses = inverse_deviation_.data();
    const Scalar *scales = memory_.parameters[0].data(), *shifts = memory_.parameters[1].data();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses;
      const Scalar* __restrict scale = scales, * __restrict shift = shifts;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict x = from + row * channels;
        Scalar* __restrict y = to + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean[c]) * inverse[c] * scale[c] + shift[c];
      }
    });
  }

  /// Adds [sum(dy), sum(dy * x')], per channel.
  void add_gradient_sums(const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient, double* to) const {
    const std::int64_t count = rows(input), channels = channels_;
    const Scalar *from = input.data(), *gradient = output_gradient.data();
    const Scalar *means = mean_.data(), *inverses = inverse_deviation_.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses;
      double* __restrict sums = to, * __restrict products = to + channels;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict x = from + row * channels;
        const Scalar* __restrict dy = gradient + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          sums[c] += static_cast<double>(dy[c]);
          products[c] += static_cast<double>(dy[c]) * static_cast<double>((x[c] - mean[c]) * inverse[c]);
        }
      }
    });
  }

  /// Computes [scale / deviation, mean(dy), mean(dy * x')], per channel.
  void compute_factors(std::span<const double> sums, std::span<Scalar> factors) const {
    const std::size_t size = mean_.size();
    const std::span<const Scalar> scales = memory_.parameters[0].host();
    for (std::size_t c = 0; c < size; ++c) {
      factors[c] = scales[c] * inverse_deviation_[c];
      factors[size + c] = static_cast<Scalar>(sums[c] / count_);
      factors[2 * size + c] = static_cast<Scalar>(sums[size + c] / count_);
    }
  }

  void propagate(const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient, const Scalar* factors,
                 Tensor<Scalar>& input_gradient) const {
    const std::int64_t count = rows(input), channels = channels_;
    const Scalar *from = input.data(), *gradient = output_gradient.data();
    const Scalar *means = mean_.data(), *inverses = inverse_deviation_.data();
    Scalar* to = input_gradient.data();
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict mean = means, * __restrict inverse = inverses, * __restrict factor = factors;
      const Scalar* __restrict mean_gradient = factors + channels, * __restrict mean_product = factors + 2 * channels;
      for (std::int64_t row = 0; row < count; ++row) {
        const Scalar* __restrict x = from + row * channels;
        const Scalar* __restrict dy = gradient + row * channels;
        Scalar* __restrict dx = to + row * channels;
        for (std::int64_t c = 0; c < channels; ++c) {
          const Scalar normalized = (x[c] - mean[c]) * inverse[c];
          dx[c] = factor[c] * (dy[c] - mean_gradient[c] - normalized * mean_product[c]);
        }
      }
    });
  }

  const BatchNormalizationOptions options_;
  std::int64_t channels_ = 0, rows_per_sample_ = 0;
  LayerMemory<Scalar> memory_;
  // State of the last forward pass.
  double count_ = 0;  ///< number of rows over which the means are taken
  std::vector<Scalar> mean_, inverse_deviation_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> batch_normalization(const BatchNormalizationOptions& options) {
  return std::make_unique<BatchNormalization<Scalar>>(options);
}
template std::unique_ptr<Layer<float>> batch_normalization<float>(const BatchNormalizationOptions&);
template std::unique_ptr<Layer<double>> batch_normalization<double>(const BatchNormalizationOptions&);

}  // namespace farandole::trainer
