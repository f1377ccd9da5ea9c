// SPDX-License-Identifier: Apache-2.0
#include "soft_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace farandole::trainer {

template <class Scalar>
double soft_cross_entropy(const Tensor<Scalar>& logits, const Tensor<Scalar>& targets,
                          const SoftCrossEntropyOptions& options, double scale, Tensor<Scalar>* gradient) {
  const std::int64_t samples = logits.samples();
  const auto classes = static_cast<std::size_t>(logits.sample_elements());
  if (gradient != nullptr) gradient->resize(samples, logits.shape());
  const double others = options.label_smoothing / static_cast<double>(classes);
  std::vector<double> exponentials(classes), smoothed(classes);
  double loss = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const Scalar* const row = logits.host().data() + sample * logits.sample_elements();
    const Scalar* const target = targets.host().data() + sample * logits.sample_elements();
    const double largest = *std::max_element(row, row + classes);
    double sum = 0, total = 0, expected = 0, class_weight = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      const double from_largest = row[c] - largest;
      sum += exponentials[c] = std::exp(from_largest);
      total += smoothed[c] = (1 - options.label_smoothing) * target[c] + others;
      expected += smoothed[c] * from_largest;
      class_weight += options.class_weights.empty() ? 0 : target[c] * options.class_weights[c];
    }
    double weight = options.class_weights.empty() ? 1 : class_weight;
    if (!options.sample_weights.empty()) weight *= options.sample_weights[static_cast<std::size_t>(sample)];
    loss += weight * (total * std::log(sum) - expected);
    if (gradient == nullptr) continue;
    Scalar* const out = gradient->data() + sample * logits.sample_elements();
    for (std::size_t c = 0; c < classes; ++c) {
      out[c] = static_cast<Scalar>(weight * scale * (total * exponentials[c] / sum - smoothed[c]));
    }
  }
  return loss;
}

template double soft_cross_entropy(const Tensor<float>&, const Tensor<float>&, const SoftCrossEntropyOptions&, double,
                                   Tensor<float>*);
template double soft_cross_entropy(const Tensor<double>&, const Tensor<double>&, const SoftCrossEntropyOptions&, double,
                                   Tensor<double>*);

}  // namespace farandole::trainer
