// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy together. A sample with several labels has a row of logits for each label; its loss is the
// mean over its rows.
#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/loss.h"
#include "kernels/kernels.h"
#include "wrong_label.h"

namespace farandole::trainer {
namespace {

void check_shape(const std::string& who, std::int64_t samples, const Shape& shape, std::size_t labels) {
  if (shape.empty() || elements(shape) < 1) {
    throw InvalidArgument(
        fmt::format("{}: expects one logit per class, the logits of a sample are {}", who, describe(shape)));
  }
  if (static_cast<std::int64_t>(labels) == samples * (elements(shape) / shape.back())) return;
  throw InvalidArgument(
      fmt::format("{}: {} samples with logits of shape {}, but {} labels", who, samples, describe(shape), labels));
}

CrossEntropyTerms terms_of(const CrossEntropyOptions& options, VectorView<const float> weights,
                           std::int64_t rows_per_sample) {
  return {
      .rows_per_sample = rows_per_sample,
      .smoothing = options.label_smoothing,
      .class_weights = options.class_weights,
      .sample_weights = weights.empty() ? nullptr : weights.data(),
  };
}

/// Adds the cross-entropies of labelled samples to `sum`. @param who  for messages
template <class Scalar>
void add_cross_entropy(const std::string& who, const Execution& execution, const Tensor<Scalar>& logits,
                       const BatchView<Scalar>& batch, const CrossEntropyOptions& options, double scale,
                       Tensor<Scalar>* gradient, VectorView<double> sum) {
  const VectorView<const std::int32_t> labels = batch.labels;
  execution.require(logits.space(), "the output of the model");
  execution.require(labels.space(), "the vector of labels");
  check_shape(who, logits.samples(), logits.shape(), labels.size());
  const std::int64_t classes = logits.shape().back(), rows = logits.sample_elements() / classes;
  if (execution.space().is_host()) check_labels(who, labels.host(), classes, rows);
  if (gradient != nullptr) gradient->resize(logits.samples(), logits.shape());
  const CrossEntropyTerms terms = terms_of(options, batch.weights, rows);
  kernels_of<Scalar>(execution).losses().cross_entropy(
      execution.workspace(), {logits.data(), labels.data(), logits.samples() * rows, classes}, terms, scale,
      gradient == nullptr ? nullptr : gradient->data(), sum.data());
}

/// Adds the cross-entropies of samples with probabilities to `sum`.
template <class Scalar>
void add_soft_cross_entropy(const Execution& execution, const Tensor<Scalar>& logits, const BatchView<Scalar>& batch,
                            const CrossEntropyOptions& options, double scale, Tensor<Scalar>* gradient,
                            VectorView<double> sum) {
  execution.require(logits.space(), "the output of the model");
  execution.require(batch.targets.space(), "the tensor of probabilities");
  if (batch.targets.size() != logits.size()) {
    throw InvalidArgument(
        fmt::format("the loss cross_entropy: {} outputs, but {} probabilities", logits.size(), batch.targets.size()));
  }
  if (gradient != nullptr) gradient->resize(logits.samples(), logits.shape());
  kernels_of<Scalar>(execution).losses().soft_cross_entropy(
      execution.workspace(), {logits.data(), batch.targets.data(), logits.samples(), logits.sample_elements()},
      terms_of(options, batch.weights, 1), scale, gradient == nullptr ? nullptr : gradient->data(), sum.data());
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

  DeviceForm device_form() const override { return DeviceForm::kGraphs; }

  void evaluate(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient, VectorView<double> sum) const override {
    batch.targets_are_probabilities
        ? add_soft_cross_entropy(execution, outputs, batch, options_, scale, gradient, sum)
        : add_cross_entropy("the loss cross_entropy", execution, outputs, batch, options_, scale, gradient, sum);
  }

 private:
  const CrossEntropyOptions options_;
};

}  // namespace

template <class Scalar>
double softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels, double scale,
                             Tensor<Scalar>* gradient) {
  static const Tensor<Scalar> none;
  double sum = 0;
  add_cross_entropy("softmax_cross_entropy", Execution(), logits, BatchView<Scalar>(none, labels, none, {}, false), {},
                    scale, gradient, VectorView<double>(&sum, 1));
  return sum;
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
