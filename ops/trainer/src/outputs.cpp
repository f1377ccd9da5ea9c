// SPDX-License-Identifier: Apache-2.0
// Losses and metrics of models with several outputs.
#include "farandole/trainer/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "farandole/core/error.h"
#include "kernels/transfer.h"
#include "output_cuts.h"

namespace farandole::trainer {
namespace {

/// Data as one output sees them, for checks.
class CutData final : public Dataset {
 public:
  CutData(const Dataset& data, const OutputCut& cut)
      : data_(data), has_labels_(cut.has_labels), target_shape_(cut.shape) {
    if (cut.has_labels) target_shape_ = targets_are_probabilities() ? data.target_shape() : Shape{};
  }
  std::int64_t size() const override { return data_.size(); }
  const Shape& shape() const override { return data_.shape(); }
  std::int32_t classes() const override { return has_labels_ ? data_.classes() : 0; }
  std::int64_t labels_per_sample() const override { return data_.labels_per_sample(); }
  const Shape& target_shape() const override { return target_shape_; }
  bool targets_are_probabilities() const override { return has_labels_ && data_.targets_are_probabilities(); }
  void gather(std::span<const std::uint32_t>, Batch<float>&) const override {
    throw InvalidArgument("the check of a loss or metric must not read samples");
  }

 private:
  const Dataset& data_;
  const bool has_labels_;
  Shape target_shape_;
};

std::size_t place_of(const std::vector<OutputCut>& cuts, const std::string& output) {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    if (cuts[k].name == output) return k;
    names.push_back(cuts[k].name);
  }
  throw InvalidArgument(
      fmt::format("the model has no output '{}'; its outputs are {}", output, fmt::join(names, ", ")));
}

template <class Scalar>
class CombinedLoss final : public Loss<Scalar> {
 public:
  CombinedLoss(const OutputParts& parts, std::vector<LossPart<Scalar>> losses)
      : cuts_(cuts_of(parts)), losses_(cuts_.size()) {
    for (LossPart<Scalar>& part : losses) {
      LossPart<Scalar>& place = losses_[place_of(cuts_, part.output)];
      if (place.loss) throw InvalidArgument(fmt::format("combined_loss: two losses for output '{}'", part.output));
      if (!part.loss) throw InvalidArgument(fmt::format("combined_loss: the loss of output '{}' is null", part.output));
      if (!(part.weight >= 0 && std::isfinite(part.weight))) {
        throw InvalidArgument(fmt::format("combined_loss: output '{}' has the weight {}; it must be finite, at least 0",
                                          part.output, part.weight));
      }
      place = std::move(part);
    }
    for (std::size_t k = 0; k < cuts_.size(); ++k) {
      if (losses_[k].loss) continue;
      throw InvalidArgument(
          fmt::format("combined_loss: no loss for output '{}'; a loss of weight 0 leaves it out", cuts_[k].name));
    }
  }

  std::string name() const override {
    std::string name = "combined";
    for (const LossPart<Scalar>& part : losses_) {
      name += fmt::format("{} {} * {} of '{}'", name == "combined" ? "" : " +", part.weight, part.loss->name(),
                          part.output);
    }
    return name;
  }

  DeviceForm device_form() const override {
    DeviceForm form = DeviceForm::kGraphs;
    for (const LossPart<Scalar>& part : losses_) form = std::min(form, part.loss->device_form());
    return form;
  }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    for (std::size_t k = 0; k < cuts_.size(); ++k) {
      check_cut(cuts_[k], output, data, what,
                [&](const Dataset& own) { losses_[k].loss->check(cuts_[k].shape, own, what); });
    }
  }

  void evaluate(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch, double scale,
                Tensor<Scalar>* gradient, VectorView<double> sum) const override {
    if (gradient != nullptr) gradient->resize(outputs.samples(), outputs.shape());
    Workspace::Scope scope(execution.workspace());
    const VectorView<double> total = scope.take<double>(1), own = scope.take<double>(1);
    clear(execution, total);
    for (std::size_t k = 0; k < cuts_.size(); ++k) {
      const double weight = losses_[k].weight;
      clear(execution, own);
      evaluate_part(k, execution, outputs, batch, scale * weight, gradient, own);
      kernels_of<Scalar>(execution).add_scaled(weight, own.data(), total.data());
    }
    kernels_of<Scalar>(execution).add_doubles(1, total.data(), sum.data());
  }

 private:
  /// Adds the loss of an output, without its weight, and writes its columns of the gradient.
  void evaluate_part(std::size_t k, const Execution& execution, const Tensor<Scalar>& outputs,
                     const BatchView<Scalar>& batch, double scale, Tensor<Scalar>* gradient,
                     VectorView<double> sum) const {
    Workspace::Scope scope(execution.workspace());
    const TensorMemory memory = memory_of(scope, execution);
    Tensor<Scalar> part(memory), part_targets(memory), part_gradient(memory);
    const OutputCut& cut = cuts_[k];
    cut.cut(execution, outputs, part);
    if (gradient != nullptr) part_gradient.resize(outputs.samples(), cut.shape);
    losses_[k].loss->evaluate(execution, part, cut.cut(execution, batch, part_targets), scale,
                              gradient == nullptr ? nullptr : &part_gradient, sum);
    if (gradient == nullptr) return;
    kernels_of<Scalar>(execution).copy_columns(outputs.samples(), part_gradient.data(),
                                               {0, cut.output.count, cut.output.count}, gradient->data(), cut.output);
  }

  const std::vector<OutputCut> cuts_;
  std::vector<LossPart<Scalar>> losses_;  ///< of each output
};

template <class Scalar>
class OutputMetric final : public Metric<Scalar> {
 public:
  OutputMetric(const OutputParts& parts, const std::string& output, MetricPointer<Scalar> metric)
      : metric_(std::move(metric)) {
    if (!metric_) throw InvalidArgument(fmt::format("metric_of_output: the metric of output '{}' is null", output));
    const std::vector<OutputCut> cuts = cuts_of(parts);
    cut_ = cuts[place_of(cuts, output)];
  }

  std::string name() const override { return fmt::format("{}.{}", cut_.name, metric_->name()); }
  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    check_cut(cut_, output, data, what, [&](const Dataset& own) { metric_->check(cut_.shape, own, what); });
  }
  std::size_t sums(const Shape&) const override { return metric_->sums(cut_.shape); }
  bool counts() const override { return metric_->counts(); }
  DeviceForm device_form() const override { return metric_->device_form(); }
  void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
           VectorView<double> sums) const override {
    Workspace::Scope scope(execution.workspace());
    const TensorMemory memory = memory_of(scope, execution);
    Tensor<Scalar> part(memory), part_targets(memory);
    cut_.cut(execution, outputs, part);
    metric_->add(execution, part, cut_.cut(execution, batch, part_targets), sums);
  }
  double value(std::span<const double> sums) const override { return metric_->value(sums); }

 private:
  OutputCut cut_;
  const MetricPointer<Scalar> metric_;
};

}  // namespace

std::vector<OutputCut> cuts_of(const OutputParts& parts) {
  if (parts.outputs.empty()) throw InvalidArgument("a model without outputs");
  std::vector<OutputCut> cuts;
  std::int64_t width = 0, target_width = 0;
  for (const GraphPort& port : parts.outputs) {
    const std::int64_t count = elements(port.shape);
    OutputCut& cut = cuts.emplace_back();
    cut.name = port.name;
    cut.shape = port.shape;
    cut.output = {width, count, 0};
    width += count;
    cut.has_labels =
        std::find(parts.with_labels.begin(), parts.with_labels.end(), port.name) != parts.with_labels.end();
    if (cut.has_labels) continue;
    cut.target = {target_width, count, 0};
    target_width += count;
  }
  for (const std::string& name : parts.with_labels) place_of(cuts, name);
  for (OutputCut& cut : cuts) {
    cut.output.width = width;
    cut.target.width = target_width;
  }
  return cuts;
}

void check_cut(const OutputCut& cut, const Shape& output, const Dataset& data, const std::string& what,
               const std::function<void(const Dataset&)>& check) {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(fmt::format("output '{}': {}", cut.name, reason));
  };
  if (elements(output) != cut.output.width) {
    refuse(fmt::format("the model's output is {}, but the outputs of the loss or metric have {} elements together",
                       describe(output), cut.output.width));
  }
  if (!cut.has_labels && data.targets_are_probabilities()) {
    refuse(
        fmt::format("the targets of {} are probabilities of classes, as with mixup, so they cannot be compared with "
                    "an output without labels",
                    what));
  }
  const std::int64_t targets = data.target_shape().empty() ? 0 : elements(data.target_shape());
  if (!cut.has_labels && targets != cut.target.width) {
    refuse(fmt::format("{} have targets of {} elements, but the outputs without labels have {} together", what, targets,
                       cut.target.width));
  }
  try {
    check(CutData(data, cut));
  } catch (const InvalidArgument& error) {
    refuse(error.message());
  }
}

template <class Scalar>
LossPointer<Scalar> combined_loss(const OutputParts& parts, std::vector<LossPart<Scalar>> losses) {
  return std::make_shared<CombinedLoss<Scalar>>(parts, std::move(losses));
}
template LossPointer<float> combined_loss<float>(const OutputParts&, std::vector<LossPart<float>>);
template LossPointer<double> combined_loss<double>(const OutputParts&, std::vector<LossPart<double>>);

template <class Scalar>
MetricPointer<Scalar> metric_of_output(const OutputParts& parts, const std::string& output,
                                       MetricPointer<Scalar> metric) {
  return std::make_shared<OutputMetric<Scalar>>(parts, output, std::move(metric));
}
template MetricPointer<float> metric_of_output<float>(const OutputParts&, const std::string&, MetricPointer<float>);
template MetricPointer<double> metric_of_output<double>(const OutputParts&, const std::string&, MetricPointer<double>);

}  // namespace farandole::trainer
