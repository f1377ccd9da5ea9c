// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and accuracy in host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/right_labels.h"

namespace farandole::trainer {

/// Factor of the loss of a row.
template <class Scalar>
double weight_of(const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms, std::int64_t row) {
  const double of_sample = terms.sample_weights == nullptr ? 1.0 : terms.sample_weights[row / terms.rows_per_sample];
  const double of_row = of_sample / static_cast<double>(terms.rows_per_sample);
  return terms.class_weights == nullptr ? of_row : of_row * terms.class_weights[rows.labels[row]];
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

}  // namespace farandole::trainer
