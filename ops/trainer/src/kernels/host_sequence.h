// SPDX-License-Identifier: Apache-2.0
// The computations of transformers in host memory. All sums are in double and in a fixed order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "blocks.h"
#include "kernels/sequence.h"
#include "matrix_product.h"
#include "vectorized.h"

namespace farandole::trainer {

/// A sum whose term i is added to lane i % kLanes, so that the compiler can vectorise it without another order of
/// additions.
struct LaneSum {
  static constexpr std::int64_t kLanes = 16;
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

template <class Scalar>
class HostSequence final : public SequenceKernels<Scalar> {
 public:
  /// The variance takes a second pass over the set, so that a large mean cancels exactly.
  void measure_sets(const SetNormalization& normalization, const Scalar* from,
                    const SetStatistics<Scalar>& statistics) const override {
    const NormalizationSets sets = normalization.sets;
    const std::int64_t count = normalization.count();
    Scalar *means = statistics.mean, *inverses = statistics.inverse_deviation;
    const bool centred = normalization.centred;
    const double epsilon = normalization.epsilon;
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

  void normalize_sets(const SetNormalization& normalization, const Scalar* from,
                      const SetStatistics<Scalar>& statistics, const Scalar* scale, const Scalar* shift,
                      Scalar* to) const override {
    const NormalizationSets sets = normalization.sets;
    const Constants constants(sets.channels);
    const Scalar *scales = scale != nullptr ? scale : constants.ones.data(),
                 *shifts = shift != nullptr ? shift : constants.zeros.data();
    const std::int64_t count = normalization.count();
    const Scalar *means = statistics.mean, *inverses = statistics.inverse_deviation;
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const Scalar mean = means[set], inverse = inverses[set];
        const Scalar* __restrict factor = scales + sets.first_channel(set);
        const Scalar* __restrict term = shifts + sets.first_channel(set);
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + sets.offset(set) + row * sets.channels;
          Scalar* __restrict y = to + sets.offset(set) + row * sets.channels;
          for (std::int64_t i = 0; i < sets.width; ++i) y[i] = (x[i] - mean) * inverse * factor[i] + term[i];
        }
      }
    });
  }

  void set_gradients(Workspace& workspace, const SetNormalization& normalization, const Scalar* from,
                     const Scalar* gradient, const SetStatistics<Scalar>& statistics, Scalar* scale_gradient,
                     Scalar* shift_gradient) const override {
    const NormalizationSets sets = normalization.sets;
    const std::int64_t count = normalization.count();
    Workspace::Scope scope(workspace);
    const std::span<double> all = scope.take<double>(static_cast<std::size_t>(2 * sets.channels)).host();
    std::ranges::fill(all, 0);
    const Scalar *means = statistics.mean, *inverses = statistics.inverse_deviation;
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
    for (std::int64_t c = 0; c < sets.channels; ++c) {
      scale_gradient[c] = static_cast<Scalar>(to[c]);
      if (shift_gradient != nullptr) shift_gradient[c] = static_cast<Scalar>(to[sets.channels + c]);
    }
  }

  void propagate_sets(const SetNormalization& normalization, const Scalar* from, const Scalar* gradient,
                      const SetStatistics<Scalar>& statistics, const Scalar* scale, Scalar* to) const override {
    const NormalizationSets sets = normalization.sets;
    const Constants constants(sets.channels);
    const Scalar* scales = scale != nullptr ? scale : constants.ones.data();
    const std::int64_t count = normalization.count();
    const Scalar *means = statistics.mean, *inverses = statistics.inverse_deviation;
    const bool centred = normalization.centred;
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t set = 0; set < count; ++set) {
        const std::int64_t offset = sets.offset(set);
        const Scalar mean = means[set], inverse = inverses[set];
        const Scalar* __restrict factor = scales + sets.first_channel(set);
        LaneSum sum, products;
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + offset + row * sets.channels;
          const Scalar* __restrict dy = gradient + offset + row * sets.channels;
          sum.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED { return static_cast<double>(dy[i] * factor[i]); });
          products.add(sets.width, [=](std::int64_t i) FARANDOLE_INLINED {
            return static_cast<double>(dy[i] * factor[i]) * static_cast<double>((x[i] - mean) * inverse);
          });
        }
        const auto mean_gradient = static_cast<Scalar>(centred ? sum.total() / sets.count() : 0);
        const auto mean_product = static_cast<Scalar>(products.total() / sets.count());
        for (std::int64_t row = 0; row < sets.rows; ++row) {
          const Scalar* __restrict x = from + offset + row * sets.channels;
          const Scalar* __restrict dy = gradient + offset + row * sets.channels;
          Scalar* __restrict dx = to + offset + row * sets.channels;
          for (std::int64_t i = 0; i < sets.width; ++i) {
            dx[i] = inverse * (dy[i] * factor[i] - mean_gradient - (x[i] - mean) * inverse * mean_product);
          }
        }
      }
    });
  }

  void look_up(const EmbeddingRows<Scalar>& rows, const Scalar* weights, Scalar* output) const override {
    for (std::int64_t k = 0; k < rows.count; ++k) {
      output = std::copy_n(weights + static_cast<std::int64_t>(rows.indices[k]) * rows.units, rows.units, output);
    }
  }
  void look_up_backward(Workspace& /*workspace*/, const EmbeddingRows<Scalar>& rows, const Scalar* gradient,
                        Scalar* to) const override {
    std::fill_n(to, rows.vocabulary * rows.units, Scalar{0});
    const std::int64_t count = rows.count, units = rows.units;
    const Scalar* indices = rows.indices;
    vectorized([=]() FARANDOLE_INLINED {
      for (std::int64_t k = 0; k < count; ++k) {
        const Scalar* __restrict dy = gradient + k * units;
        Scalar* __restrict sum = to + static_cast<std::int64_t>(indices[k]) * units;
        for (std::int64_t i = 0; i < units; ++i) sum[i] += dy[i];
      }
    });
  }
  void add_row(std::int64_t rows, std::int64_t columns, const Scalar* from, const Scalar* added,
               Scalar* to) const override {
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict row = added;
      for (std::int64_t k = 0; k < rows; ++k) {
        const Scalar* __restrict x = from + k * columns;
        Scalar* __restrict y = to + k * columns;
        for (std::int64_t i = 0; i < columns; ++i) y[i] = x[i] + row[i];
      }
    });
  }

  void multiply_batch(const BatchOfProducts& batch, const Factor<Scalar>& left, const Factor<Scalar>& right,
                      Scalar* result, std::int64_t stride) const override {
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      for (std::int64_t head = 0; head < batch.heads; ++head) {
        const auto offset = [&](const BatchOfProducts::Steps& steps) {
          return sample * steps.sample + head * steps.head;
        };
        Factor<Scalar> one = left, other = right;
        one.values += offset(batch.left);
        other.values += offset(batch.right);
        multiply(one, other, false, result + offset(batch.result), stride);
      }
    }
  }

  void softmax(Workspace& /*workspace*/, const AttentionScores& scores, Scalar* values) const override {
    for (std::int64_t k = 0; k < scores.count; ++k) softmax_of(scores, values + k * scores.length * scores.length);
  }
  void softmax_backward(Workspace& /*workspace*/, const AttentionScores& scores, const Scalar* probabilities,
                        Scalar* gradients) const override {
    const auto factor = static_cast<Scalar>(scores.scale);
    for (std::int64_t k = 0; k < scores.count * scores.length; ++k) {
      const Scalar* p = probabilities + k * scores.length;
      Scalar* gradient = gradients + k * scores.length;
      double product = 0;
      for (std::int64_t i = 0; i < scores.visible(k % scores.length); ++i) {
        product += static_cast<double>(gradient[i]) * static_cast<double>(p[i]);
      }
      const auto mean = static_cast<Scalar>(product);
      for (std::int64_t i = 0; i < scores.length; ++i) gradient[i] = p[i] * (gradient[i] - mean) * factor;
    }
  }

 private:
  /// Scale and shift of layers without these parameters.
  struct Constants {
    explicit Constants(std::int64_t channels)
        : ones(static_cast<std::size_t>(channels), Scalar{1}), zeros(ones.size(), Scalar{0}) {}
    std::vector<Scalar> ones, zeros;
  };

  /// Replaces the scores of a head by their probabilities, row by row.
  static void softmax_of(const AttentionScores& scores, Scalar* head) {
    const std::int64_t length = scores.length;
    const auto factor = static_cast<Scalar>(scores.scale);
    for (std::int64_t row = 0; row < length; ++row) {
      Scalar* values = head + row * length;
      const Scalar largest = *std::max_element(values, values + scores.visible(row));
      for (std::int64_t k = 0; k < scores.visible(row); ++k) values[k] = (values[k] - largest) * factor;
      std::fill(values + scores.visible(row), values + length, Scalar{0});
    }
    transform_blocks(
        length * length, head, [](const Block<Scalar>& x) -> Block<Scalar> { return x.exp(); }, head);
    for (std::int64_t row = 0; row < length; ++row) {
      Scalar* values = head + row * length;
      double sum = 0;
      for (std::int64_t k = 0; k < scores.visible(row); ++k) sum += static_cast<double>(values[k]);
      const auto inverse = static_cast<Scalar>(1 / sum);
      for (std::int64_t k = 0; k < scores.visible(row); ++k) values[k] *= inverse;
      std::fill(values + scores.visible(row), values + length, Scalar{0});
    }
  }
};

}  // namespace farandole::trainer
