// SPDX-License-Identifier: Apache-2.0
// The computations of losses and metrics in host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/losses.h"
#include "kernels/right_labels.h"

namespace farandole::trainer {

/// Factor of the loss of a row.
template <class Scalar>
double weight_of(const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms, std::int64_t row) {
  const double of_sample = terms.sample_weights == nullptr ? 1.0 : terms.sample_weights[row / terms.rows_per_sample];
  const double of_row = of_sample / static_cast<double>(terms.rows_per_sample);
  if (terms.class_weights.empty()) return of_row;
  return of_row * terms.class_weights[static_cast<std::size_t>(rows.labels[row])];
}

/// Returns the sum of the cross-entropies. Computed in double: loss = log(sum of exp(z - max)) - (z[label] - max),
/// d loss / d z = softmax(z) - target.
template <class Scalar>
double host_cross_entropy(const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms, double scale,
                          Scalar* gradient) {
  const std::int64_t classes = rows.classes;
  const double others = terms.smoothing / static_cast<double>(classes);
  double loss_sum = 0;
  std::vector<double> exponentials(static_cast<std::size_t>(classes));
  for (std::int64_t index = 0; index < rows.rows; ++index) {
    const Scalar* row = rows.logits + index * classes;
    const std::int32_t label = rows.labels[index];
    const double weight = weight_of(rows, terms, index);
    const Scalar* largest = std::max_element(row, row + classes);
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      sum += exponentials[static_cast<std::size_t>(c)] = std::exp(static_cast<double>(row[c]) - *largest);
    }
    double expected = static_cast<double>(row[label]) - *largest;
    if (terms.smoothing > 0) {
      expected *= 1 - terms.smoothing;
      for (std::int64_t c = 0; c < classes; ++c) expected += others * (static_cast<double>(row[c]) - *largest);
    }
    loss_sum += weight * (std::log(sum) - expected);
    if (gradient == nullptr) continue;
    Scalar* out = gradient + index * classes;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = (c == label ? 1 - terms.smoothing : 0) + others;
      out[c] = static_cast<Scalar>(weight * scale * (exponentials[static_cast<std::size_t>(c)] / sum - target));
    }
  }
  return loss_sum;
}

/// Returns the number of rows whose label is among the `k` largest logits. A label whose logit is NaN is not.
template <class Scalar>
std::int64_t host_count_right(const LabelledRows<Scalar>& rows, std::int64_t k) {
  std::int64_t right = 0;
  for (std::int64_t index = 0; index < rows.rows; ++index) {
    const Scalar* row = rows.logits + index * rows.classes;
    right += number_of_larger(row, rows.classes, rows.labels[index]) < k ? 1 : 0;
  }
  return right;
}

/// Returns the sum of the losses of rows with probabilities.
template <class Scalar>
double host_soft_cross_entropy(const RowsWithProbabilities<Scalar>& rows, const CrossEntropyTerms& terms, double scale,
                               Scalar* gradient) {
  const auto classes = static_cast<std::size_t>(rows.classes);
  const double others = terms.smoothing / static_cast<double>(classes);
  std::vector<double> exponentials(classes), smoothed(classes);
  double loss = 0;
  for (std::int64_t index = 0; index < rows.rows; ++index) {
    const Scalar* const row = rows.logits + index * rows.classes;
    const Scalar* const target = rows.probabilities + index * rows.classes;
    const double largest = *std::max_element(row, row + classes);
    double sum = 0, total = 0, expected = 0, class_weight = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double from_largest = row[c] - largest;
      sum += exponentials[c] = std::exp(from_largest);
      total += smoothed[c] = (1 - terms.smoothing) * target[c] + others;
      expected += smoothed[c] * from_largest;
      class_weight += c < terms.class_weights.size() ? target[c] * terms.class_weights[c] : 0;
    }
    double weight = terms.class_weights.empty() ? 1 : class_weight;
    if (terms.sample_weights != nullptr) weight *= terms.sample_weights[index];
    loss += weight * (total * std::log(sum) - expected);
    if (gradient == nullptr) continue;
    Scalar* const out = gradient + index * rows.classes;
    for (std::size_t c = 0; c < classes; ++c) {
      out[c] = static_cast<Scalar>(weight * scale * (total * exponentials[c] / sum - smoothed[c]));
    }
  }
  return loss;
}

/// Returns the sum of the losses by a formula of target_formulas.h.
template <class Scalar, class Formula>
double host_target_loss(const Formula& formula, const OutputsWithTargets<Scalar>& values, const float* sample_weights,
                        double scale, Scalar* gradient) {
  double loss_sum = 0;
  for (std::int64_t sample = 0; sample < values.samples; ++sample) {
    const double weight = sample_weights == nullptr ? 1.0 : static_cast<double>(sample_weights[sample]);
    const double factor = weight / static_cast<double>(values.width);
    double sum = 0;
    for (std::int64_t i = sample * values.width; i < (sample + 1) * values.width; ++i) {
      const LossPoint point = formula(values.outputs[i], values.targets[i]);
      sum += point.loss;
      if (gradient != nullptr) gradient[i] = static_cast<Scalar>(scale * factor * point.slope);
    }
    loss_sum += factor * sum;
  }
  return loss_sum;
}

template <class Scalar>
class HostLosses final : public LossKernels<Scalar> {
 public:
  void cross_entropy(Workspace& /*workspace*/, const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms,
                     double scale, Scalar* gradient, double* sum) const override {
    *sum += host_cross_entropy(rows, terms, scale, gradient);
  }
  void soft_cross_entropy(Workspace& /*workspace*/, const RowsWithProbabilities<Scalar>& rows,
                          const CrossEntropyTerms& terms, double scale, Scalar* gradient, double* sum) const override {
    *sum += host_soft_cross_entropy(rows, terms, scale, gradient);
  }
  void target_loss(Workspace& /*workspace*/, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                   const float* sample_weights, double scale, Scalar* gradient, double* sum) const override {
    use_formula(
        rule, [&](const auto& formula) { *sum += host_target_loss(formula, values, sample_weights, scale, gradient); });
  }

  void count_right(Workspace& /*workspace*/, const LabelledRows<Scalar>& rows, std::int64_t k,
                   double* sums) const override {
    sums[0] += static_cast<double>(host_count_right(rows, k));
    sums[1] += static_cast<double>(rows.rows);
  }
  void count_confusions(Workspace& /*workspace*/, const LabelledRows<Scalar>& rows, double* counts) const override {
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const std::int64_t label = rows.labels[i];
      counts[label * rows.classes + predicted_class(rows.logits + i * rows.classes, rows.classes, label)] += 1;
    }
  }
  void add_errors(Workspace& /*workspace*/, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                  double* sums) const override {
    use_formula(rule, [&](const auto& formula) {
      for (std::int64_t sample = 0; sample < values.samples; ++sample) {
        double sum = 0;
        for (std::int64_t i = sample * values.width; i < (sample + 1) * values.width; ++i) {
          sum += formula(values.outputs[i], values.targets[i]).loss;
        }
        sums[0] += sum / static_cast<double>(values.width);
      }
    });
    sums[1] += static_cast<double>(values.samples);
  }
  void count_right_sides(Workspace& /*workspace*/, double threshold, const OutputsWithTargets<Scalar>& values,
                         double* sums) const override {
    for (std::int64_t i = 0; i < values.count(); ++i) {
      sums[0] += (static_cast<double>(values.outputs[i]) > threshold) == (static_cast<double>(values.targets[i]) > 0.5);
    }
    sums[1] += static_cast<double>(values.count());
  }
};

}  // namespace farandole::trainer
