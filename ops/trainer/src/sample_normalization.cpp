// SPDX-License-Identifier: Apache-2.0
// Normalisation inside a sample: layer, group and RMS normalisation. A sample is cut into sets of elements, and each
// set is normalised on its own.
//   forward    x' = (x - mean) / sqrt(variance + epsilon),  y = scale * x' + shift
//   backward   dx = (g - mean(g) - x' * mean(g * x')) / sqrt(variance + epsilon),  with g = scale * dy
// RMS normalisation takes 0 for mean and mean(g), so that the variance is the mean of the squares. All sums are in
// double and in a fixed order. The variance takes a second pass over the set, so that a large mean cancels exactly.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/layers.h"
#include "scratch.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

constexpr std::int64_t kLanes = 16;

/// A sum whose term i is added to lane i % kLanes, so that the compiler can vectorise it without another order of
/// additions.
struct LaneSum {
  double lanes[kLanes] = {};

  template <class Term>
  FARANDOLE_INLINED void add(std::int64_t count, const Term& term) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (std::int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  }
  FARANDOLE_INLINED double total() const {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

/// Sets of a sample. Set k is `rows` runs of `width` neighbours; run r begins at element k * width + r * channels. The
/// channel of an element is its index modulo `channels`.
struct Sets {
  std::int64_t per_sample = 0, rows = 0, width = 0, channels = 0;

  std::int64_t sample_elements() const { return per_sample * rows * width; }
  std::int64_t offset(std::int64_t set) const {
    return set / per_sample * sample_elements() + set % per_sample * width;
  }
  std::int64_t first_channel(std::int64_t set) const { return set % per_sample * width % channels; }
  double count() const { return static_cast<double>(rows * width); }
};

struct NormalizationKind {
  std::string name;
  bool centred = true;      ///< subtract the mean and add a shift; false for RMS normalisation
  std::int64_t groups = 0;  ///< sets of group normalisation; 0: each row of channels is a set
};

template <class Scalar>
class SampleNormalization final : public Layer<Scalar> {
 public:
  SampleNormalization(NormalizationKind kind, const NormalizationOptions& options)
      : kind_(std::move(kind)), options_(options) {
    if (!(options.epsilon > 0)) {
      throw InvalidArgument(fmt::format("{}: epsilon must be positive, got {}", kind_.name, options.epsilon));
    }
  }

  std::string name() const override {
    return fmt::format("{}, epsilon {}{}", kind_.name, options_.epsilon, options_.affine ? "" : ", not affine");
  }

  Shape prepare(const Shape& input) override {
    if (input.empty() || elements(input) < 1) {
      throw InvalidArgument(
          fmt::format("{}: expects samples with channels, the input is {}", kind_.name, trainer::describe(input)));
    }
    const std::int64_t channels = input.back(), rows = elements(input) / channels;
    if (kind_.groups > 0 && channels % kind_.groups != 0) {
      throw InvalidArgument(fmt::format("{}: expects a number of channels that is a multiple of {}, the input is {}",
                                        kind_.name, kind_.groups, trainer::describe(input)));
    }
    sets_ = kind_.groups > 0 ? Sets{kind_.groups, rows, channels / kind_.groups, channels}
                             : Sets{rows, 1, channels, channels};
    ones_.assign(static_cast<std::size_t>(channels), 1);
    zeros_.assign(static_cast<std::size_t>(channels), 0);
    return input;
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    if (options_.affine) specs.push_back({"scale", {sets_.channels}, Initial::kOne, 1, false});
    if (options_.affine && kind_.centred) specs.push_back({"shift", {sets_.channels}, Initial::kZero, 1, false});
    return specs;
  }
  void bind(const LayerMemory<Scalar>& memory) override { memory_ = memory; }

  void forward(const Pass&, const Tensor<Scalar>& input, Tensor<Scalar>& output) override {
    measure(input);
    const Sets sets = sets_;
    const std::int64_t count = input.samples() * sets.per_sample;
    const Scalar *from = input.data(), *means = mean_.data(), *inverses = inverse_deviation_.data();
    const Scalar *scales = this->scales(), *shifts = this->shifts();
    Scalar* to = output.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const Scalar mean = means[set], inverse = inverses[set];
        const Scalar* __restrict scale = scales + sets.first_channel(set);
        const Scalar* __restrict shift = shifts + sets.first_channel(set);
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + sets.offset(set) + row * sets.channels;
          Scalar* __restrict y = to + sets.offset(set) + row * sets.channels;
          for (std::int64_t i = 0; i < sets.width; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
        }
      }
    });
  }

  void backward(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>&,
                const Tensor<Scalar>& output_gradient, Tensor<Scalar>* input_gradient) override {
    if (options_.affine) add_parameter_gradients(pass, input, output_gradient);
    if (input_gradient != nullptr) propagate(input, output_gradient, *input_gradient);
  }

 private:
  const Scalar* scales() const { return options_.affine ? memory_.parameters[0].data() : ones_.data(); }
  const Scalar* shifts() const {
    return options_.affine && kind_.centred ? memory_.parameters[1].data() : zeros_.data();
  }

  /// Computes mean and inverse deviation of each set.
  void measure(const Tensor<Scalar>& input) {
    const Sets sets = sets_;
    const std::int64_t count = input.samples() * sets.per_sample;
    mean_.resize(static_cast<std::size_t>(count));
    inverse_deviation_.resize(mean_.size());
    const Scalar* from = input.data();
    Scalar *means = mean_.data(), *inverses = inverse_deviation_.data();
    const bool centred = kind_.centred;
    const double epsilon = options_.epsilon;
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const Scalar* values = from + sets.offset(set);
        LaneSum sum, squares;
        for (std::int64_t row = 0; row < sets.rows && centred; ++row) {
          const Scalar* __restrict x = values + row * sets.channels;
          sum.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED { return static_cast<double>(x[i]); });
        }
        const double mean = sum.total() / sets.count();
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = values + row * sets.channels;
          squares.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED {
            const double deviation = static_cast<double>(x[i]) - mean;
            return deviation * deviation;
          });
        }
        means[set] = static_cast<Scalar>(mean);
        inverses[set] = static_cast<Scalar>(1 / std::sqrt(squares.total() / sets.count() + epsilon));
      }
    });
  }

  /// Sums dy * x' and dy over samples and positions, in their order.
  void add_parameter_gradients(const Pass& pass, const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient) {
    const Sets sets = sets_;
    const std::int64_t count = input.samples() * sets.per_sample;
    Workspace::Scope scope(pass.execution.workspace());
    const std::span<double> all = take_zeros<double>(scope, 2 * ones_.size());
    const Scalar *from = input.data(), *gradient = output_gradient.data();
    const Scalar *means = mean_.data(), *inverses = inverse_deviation_.data();
    double* to = all.data();
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const Scalar mean = means[set], inverse = inverses[set];
        double* __restrict products = to + sets.first_channel(set);
        double* __restrict sums = to + sets.channels + sets.first_channel(set);
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + sets.offset(set) + row * sets.channels;
          const Scalar* __restrict dy = gradient + sets.offset(set) + row * sets.channels;
          for (std::int64_t i = 0; i < sets.width; ++i) {
            products[i] += static_cast<double>(dy[i]) * static_cast<double>((x[i] - mean) * inverse);
            sums[i] += static_cast<double>(dy[i]);
          }
        }
      }
    });
    const double* sum = all.data();
    for (const VectorView<Scalar>& result : memory_.gradients) {  // scale, then shift
      for (Scalar& value : result.host()) value = static_cast<Scalar>(*sum++);
    }
  }

  void propagate(const Tensor<Scalar>& input, const Tensor<Scalar>& output_gradient, Tensor<Scalar>& input_gradient) {
    const Sets sets = sets_;
    const std::int64_t count = input.samples() * sets.per_sample;
    const Scalar *from = input.data(), *gradient = output_gradient.data(), *scales = this->scales();
    const Scalar *means = mean_.data(), *inverses = inverse_deviation_.data();
    Scalar* to = input_gradient.data();
    const bool centred = kind_.centred;
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const std::int64_t offset = sets.offset(set);
        const Scalar mean = means[set], inverse = inverses[set];
        const Scalar* __restrict scale = scales + sets.first_channel(set);
        LaneSum sum, products;
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + offset + row * sets.channels;
          const Scalar* __restrict dy = gradient + offset + row * sets.channels;
          sum.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED { return static_cast<double>(dy[i] * scale[i]); });
          products.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED {
            return static_cast<double>(dy[i] * scale[i]) * static_cast<double>((x[i] - mean) * inverse);
          });
        }
        const auto mean_gradient = static_cast<Scalar>(centred ? sum.total() / sets.count() : 0);
        const auto mean_product = static_cast<Scalar>(products.total() / sets.count());
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + offset + row * sets.channels;
          const Scalar* __restrict dy = gradient + offset + row * sets.channels;
          Scalar* __restrict dx = to + offset + row * sets.channels;
          for (std::int64_t i = 0; i < sets.width; ++i) {
            dx[i] = inverse * (dy[i] * scale[i] - mean_gradient - (x[i] - mean) * inverse * mean_product);
          }
        }
      }
    });
  }

  const NormalizationKind kind_;
  const NormalizationOptions options_;
  Sets sets_;
  LayerMemory<Scalar> memory_;
  std::vector<Scalar> ones_, zeros_;  ///< scale and shift of layers without these parameters
  // State of the last forward pass, per set.
  std::vector<Scalar> mean_, inverse_deviation_;
};

}  // namespace

template <class Scalar>
std::unique_ptr<Layer<Scalar>> layer_normalization(const NormalizationOptions& options) {
  return std::make_unique<SampleNormalization<Scalar>>(NormalizationKind{"layer_normalization"}, options);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> group_normalization(std::int64_t groups, const NormalizationOptions& options) {
  if (groups < 1) {
    throw InvalidArgument(fmt::format("group_normalization: groups must be at least 1, got {}", groups));
  }
  return std::make_unique<SampleNormalization<Scalar>>(
      NormalizationKind{fmt::format("group_normalization, {} groups", groups), true, groups}, options);
}
template <class Scalar>
std::unique_ptr<Layer<Scalar>> rms_normalization(const NormalizationOptions& options) {
  return std::make_unique<SampleNormalization<Scalar>>(NormalizationKind{"rms_normalization", false}, options);
}
template std::unique_ptr<Layer<float>> layer_normalization<float>(const NormalizationOptions&);
template std::unique_ptr<Layer<double>> layer_normalization<double>(const NormalizationOptions&);
template std::unique_ptr<Layer<float>> group_normalization<float>(std::int64_t, const NormalizationOptions&);
template std::unique_ptr<Layer<double>> group_normalization<double>(std::int64_t, const NormalizationOptions&);
template std::unique_ptr<Layer<float>> rms_normalization<float>(const NormalizationOptions&);
template std::unique_ptr<Layer<double>> rms_normalization<double>(const NormalizationOptions&);

}  // namespace farandole::trainer
