// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy together, computed in double: loss = log(sum of exp(z - max)) - (z[label] - max),
// d loss / d z = softmax(z) - one_hot(label). A sample with several labels has a row of logits for each label; its loss
// is the mean over its rows.
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
  if (shape.empty() || elements(shape) < 1) {
    throw InvalidArgument(fmt::format(
        "softmax_cross_entropy: expects one logit per class, the logits of a sample are {}", describe(shape)));
  }
  const std::int64_t classes = shape.back(), rows = elements(shape) / classes;
  if (static_cast<std::int64_t>(labels.size()) != samples * rows) {
    throw InvalidArgument(fmt::format("softmax_cross_entropy: {} samples with logits of shape {}, but {} labels",
                                      samples, describe(shape), labels.size()));
  }
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](std::int32_t label) { return label < 0 || label >= classes; });
  if (wrong != labels.end()) {
    throw InvalidArgument(fmt::format("softmax_cross_entropy: sample {} has label {}, expected 0 to {}",
                                      (wrong - labels.begin()) / rows, *wrong, classes - 1));
  }
}

/// The targets of a cross-entropy, without copies. Empty spans: every class, or sample, has the factor 1.
struct Targets {
  std::span<const std::int32_t> labels;
  double smoothing = 0;
  std::span<const double> class_weights = {};
  std::span<const float> sample_weights = {};

  /// Factor of the loss of label `index`. @param rows  number of labels per sample
  double weight(std::size_t index, std::size_t rows) const {
    const double of_sample = sample_weights.empty() ? 1.0 : static_cast<double>(sample_weights[index / rows]);
    const double of_row = of_sample / static_cast<double>(rows);
    return class_weights.empty() ? of_row : of_row * class_weights[static_cast<std::size_t>(labels[index])];
  }
};

template <class Scalar>
double cross_entropy(const Tensor<Scalar>& logits, const Targets& targets, double scale, Tensor<Scalar>* gradient) {
  const std::int64_t samples = logits.samples();
  check(samples, logits.shape(), targets.labels);
  const std::int64_t classes = logits.shape().back(), rows = logits.sample_elements() / classes;
  if (gradient != nullptr) gradient->resize(samples, logits.shape());

  const double others = targets.smoothing / static_cast<double>(classes);
  const Scalar* const all_logits = logits.host().data();
  double loss_sum = 0;
  std::vector<double> exponentials(static_cast<std::size_t>(classes));
  for (std::int64_t index = 0; index < samples * rows; ++index) {
    const Scalar* row = all_logits + index * classes;
    const std::int32_t label = targets.labels[static_cast<std::size_t>(index)];
    const double weight = targets.weight(static_cast<std::size_t>(index), static_cast<std::size_t>(rows));
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
    loss_sum += weight * (std::log(sum) - expected);
    if (gradient == nullptr) continue;
    Scalar* out = gradient->data() + index * classes;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = (c == label ? 1 - targets.smoothing : 0) + others;
      out[c] = static_cast<Scalar>(weight * scale * (exponentials[static_cast<std::size_t>(c)] / sum - target));
    }
  }
  return loss_sum;
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
    if (data.classes() == 0) {
      throw InvalidArgument(fmt::format(
          "the loss cross_entropy needs samples with classes, and {} have none; for targets use mean_squared_error or "
          "another loss",
          what));
    }
    if (data.targets_are_probabilities() && data.target_shape() != output) {
      throw InvalidArgument(fmt::format("the model's output is {}, but {} have probabilities of shape {}",
                                        describe(output), what, describe(data.target_shape())));
    }
    if (output.empty() || output.back() < data.classes()) {
      throw InvalidArgument(
          fmt::format("the model's output is {}, but {} have {} classes", describe(output), what, data.classes()));
    }
    if (elements(output) / output.back() != data.labels_per_sample()) {
      throw InvalidArgument(fmt::format(
          "the model's output is {}, but {} have {} classes and {} labels per sample; the loss cross_entropy needs one "
          "logit per class for each label",
          describe(output), what, data.classes(), data.labels_per_sample()));
    }
    const auto weights = static_cast<std::int32_t>(options_.class_weights.size());
    if (weights != 0 && weights != data.classes()) {
      throw InvalidArgument(fmt::format("{} class weights, but {} have {} classes", weights, what, data.classes()));
    }
  }

  void evaluate(const Execution&, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient, VectorView<double> sum) const override {
    sum.host().front() += sum_of(outputs, batch, scale, gradient);
  }

 private:
  double sum_of(const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient) const {
    if (batch.targets_are_probabilities) {
      if (batch.targets.size() != outputs.size()) {
        throw InvalidArgument(fmt::format("the loss cross_entropy: {} outputs, but {} probabilities", outputs.size(),
                                          batch.targets.size()));
      }
      return soft_cross_entropy(outputs, batch.targets,
                                {options_.label_smoothing, options_.class_weights, batch.weights.host()}, scale,
                                gradient);
    }
    return cross_entropy(outputs,
                         {batch.labels.host(), options_.label_smoothing, options_.class_weights, batch.weights.host()},
                         scale, gradient);
  }

  const CrossEntropyOptions options_;
};

}  // namespace

template <class Scalar>
double softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels, double scale,
                             Tensor<Scalar>* gradient) {
  return cross_entropy(logits, {labels}, scale, gradient);
}
template double softmax_cross_entropy<float>(const Tensor<float>&, std::span<const std::int32_t>, double,
                                             Tensor<float>*);
template double softmax_cross_entropy<double>(const Tensor<double>&, std::span<const std::int32_t>, double,
                                              Tensor<double>*);

template <class Scalar>
LossPointer<Scalar> cross_entropy_loss(CrossEntropyOptions options) {
  return std::make_shared<CrossEntropy<Scalar>>(std::move(options));
}
template LossPointer<float> cross_entropy_loss<float>(CrossEntropyOptions);
template LossPointer<double> cross_entropy_loss<double>(CrossEntropyOptions);

}  // namespace farandole::trainer
