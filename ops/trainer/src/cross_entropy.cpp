// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy together, computed in double: loss = log(sum of exp(z - max)) - (z[label] - max),
// d loss / d z = softmax(z) - one_hot(label).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "soft_cross_entropy.h"

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

/// The targets of a cross-entropy, without copies. Empty spans: every class, or sample, has the factor 1.
struct Targets {
  std::span<const std::int32_t> labels;
  double smoothing = 0;
  std::span<const double> class_weights = {};
  std::span<const float> sample_weights = {};

  double weight(std::size_t sample) const {
    const double of_sample = sample_weights.empty() ? 1.0 : static_cast<double>(sample_weights[sample]);
    return class_weights.empty() ? of_sample : of_sample * class_weights[static_cast<std::size_t>(labels[sample])];
  }
};

template <class Scalar>
BatchResult cross_entropy(const Tensor<Scalar>& logits, const Targets& targets, double scale,
                          Tensor<Scalar>* gradient) {
  const std::int64_t samples = logits.samples(), classes = logits.sample_elements();
  check(samples, logits.shape(), targets.labels);
  if (gradient != nullptr) gradient->resize(samples, logits.shape());

  const double others = targets.smoothing / static_cast<double>(classes);
  BatchResult result;
  result.samples = samples;
  std::vector<double> exponentials(static_cast<std::size_t>(classes));
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const Scalar* row = logits.data() + sample * classes;
    const std::int32_t label = targets.labels[static_cast<std::size_t>(sample)];
    const double weight = targets.weight(static_cast<std::size_t>(sample));
    const Scalar* largest = std::max_element(row, row + classes);
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      sum += exponentials[static_cast<std::size_t>(c)] = std::exp(static_cast<double>(row[c]) - *largest);
    }
    double expected = static_cast<double>(row[label]) - *largest;
    if (targets.smoothing > 0) {
      expected *= 1 - targets.smoothing;
      for (std::int64_t c = 0; c < classes; ++c) expected += others * (static_cast<double>(row[c]) - *largest);
    }
    result.loss_sum += weight * (std::log(sum) - expected);
    if (largest - row == label) ++result.correct;
    if (gradient == nullptr) continue;
    Scalar* out = gradient->data() + sample * classes;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = (c == label ? 1 - targets.smoothing : 0) + others;
      out[c] = static_cast<Scalar>(weight * scale * (exponentials[static_cast<std::size_t>(c)] / sum - target));
    }
  }
  return result;
}

template <class Scalar>
class CrossEntropy final : public Loss<Scalar> {
 public:
  explicit CrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {
    const double smoothing = options_.label_smoothing;
    if (!(smoothing >= 0 && smoothing < 1)) {
      throw InvalidArgument(fmt::format("a label smoothing of {}; it must be at least 0 and below 1", smoothing));
    }
    for (const double weight : options_.class_weights) {
      if (weight >= 0 && std::isfinite(weight)) continue;
      throw InvalidArgument(fmt::format("a class weight of {}; it must be a finite number, at least 0", weight));
    }
  }

  std::string name() const override {
    std::string name = "cross_entropy";
    if (options_.label_smoothing > 0) name += fmt::format(", label smoothing {}", options_.label_smoothing);
    if (!options_.class_weights.empty())
      name += fmt::format(", class weights {}", fmt::join(options_.class_weights, " "));
    return name;
  }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    if (data.classes() == 0 && (data.target_shape().empty() || data.target_shape() != output)) {
      throw InvalidArgument(fmt::format(
          "the loss cross_entropy needs samples with classes, and {} have none, nor a probability for each output as "
          "targets; for other targets use mean_squared_error or another loss",
          what));
    }
    if (elements(output) < data.classes()) {
      throw InvalidArgument(
          fmt::format("the model's output is {}, but {} have {} classes", describe(output), what, data.classes()));
    }
    const auto weights = static_cast<std::int32_t>(options_.class_weights.size());
    const auto classes = data.classes() > 0 ? data.classes() : static_cast<std::int32_t>(elements(output));
    if (weights != 0 && weights != classes) {
      throw InvalidArgument(fmt::format("{} class weights, but {} have {} classes", weights, what, classes));
    }
  }

  BatchResult evaluate(const Tensor<Scalar>& outputs, const Batch<Scalar>& batch, double scale,
                       Tensor<Scalar>* gradient) const override {
    if (batch.targets.samples() > 0 && batch.targets.shape() == outputs.shape()) {
      return with_probabilities(outputs, batch, scale, gradient);
    }
    return cross_entropy(outputs, {batch.labels, options_.label_smoothing, options_.class_weights, batch.weights},
                         scale, gradient);
  }

 private:
  BatchResult with_probabilities(const Tensor<Scalar>& outputs, const Batch<Scalar>& batch, double scale,
                                 Tensor<Scalar>* gradient) const {
    BatchResult result{.samples = outputs.samples()};
    result.loss_sum = soft_cross_entropy(
        outputs, batch.targets, {options_.label_smoothing, options_.class_weights, batch.weights}, scale, gradient);
    for (std::size_t sample = 0; sample < batch.labels.size(); ++sample) {
      const Scalar* const row = outputs.data() + static_cast<std::int64_t>(sample) * outputs.sample_elements();
      if (std::max_element(row, row + outputs.sample_elements()) - row == batch.labels[sample]) ++result.correct;
    }
    return result;
  }

  const CrossEntropyOptions options_;
};

}  // namespace

template <class Scalar>
BatchResult softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels, double scale,
                                  Tensor<Scalar>* gradient) {
  return cross_entropy(logits, {labels}, scale, gradient);
}
template BatchResult softmax_cross_entropy<float>(const Tensor<float>&, std::span<const std::int32_t>, double,
                                                  Tensor<float>*);
template BatchResult softmax_cross_entropy<double>(const Tensor<double>&, std::span<const std::int32_t>, double,
                                                   Tensor<double>*);

template <class Scalar>
LossPointer<Scalar> cross_entropy_loss(CrossEntropyOptions options) {
  return std::make_shared<CrossEntropy<Scalar>>(std::move(options));
}
template LossPointer<float> cross_entropy_loss<float>(CrossEntropyOptions);
template LossPointer<double> cross_entropy_loss<double>(CrossEntropyOptions);

}  // namespace farandole::trainer
