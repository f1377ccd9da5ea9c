// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy together, computed in double: loss = log(sum of exp(z - max)) - (z[label] - max),
// d loss / d z = softmax(z) - one_hot(label).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farandole/core/error.h"
#include "farandole/trainer/model.h"

namespace farandole::trainer {
namespace {

void check(std::int64_t samples, const Shape& shape, std::span<const std::int32_t> labels) {
  if (shape.size() != 1 || shape[0] < 1) {
    throw InvalidArgument(fmt::format(
        "softmax_cross_entropy: expects one logit per class, the logits of a sample are {}", describe(shape)));
  }
  if (static_cast<std::int64_t>(labels.size()) != samples) {
    throw InvalidArgument(fmt::format("softmax_cross_entropy: {} samples, but {} labels", samples, labels.size()));
  }
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](std::int32_t label) { return label < 0 || label >= shape[0]; });
  if (wrong != labels.end()) {
    throw InvalidArgument(fmt::format("softmax_cross_entropy: sample {} has label {}, expected 0 to {}",
                                      wrong - labels.begin(), *wrong, shape[0] - 1));
  }
}

}  // namespace

template <class Scalar>
BatchResult softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels, double scale,
                                  Tensor<Scalar>* gradient) {
  const std::int64_t samples = logits.samples(), classes = logits.sample_elements();
  check(samples, logits.shape(), labels);
  if (gradient != nullptr) gradient->resize(samples, logits.shape());

  BatchResult result;
  result.samples = samples;
  std::vector<double> exponentials(static_cast<std::size_t>(classes));
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const Scalar* row = logits.data() + sample * classes;
    const std::int32_t label = labels[static_cast<std::size_t>(sample)];
    const Scalar* largest = std::max_element(row, row + classes);
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      sum += exponentials[static_cast<std::size_t>(c)] = std::exp(static_cast<double>(row[c]) - *largest);
    }
    result.loss_sum += std::log(sum) - (static_cast<double>(row[label]) - *largest);
    if (largest - row == label) ++result.correct;
    if (gradient == nullptr) continue;
    Scalar* out = gradient->data() + sample * classes;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = c == label ? 1 : 0;
      out[c] = static_cast<Scalar>(scale * (exponentials[static_cast<std::size_t>(c)] / sum - target));
    }
  }
  return result;
}

template BatchResult softmax_cross_entropy<float>(const Tensor<float>&, std::span<const std::int32_t>, double,
                                                  Tensor<float>*);
template BatchResult softmax_cross_entropy<double>(const Tensor<double>&, std::span<const std::int32_t>, double,
                                                   Tensor<double>*);

}  // namespace farandole::trainer
