// SPDX-License-Identifier: Apache-2.0
// The built-in metrics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "farandole/core/error.h"
#include "farandole/trainer/metric.h"
#include "kernels/kernels.h"
#include "metric_sums.h"
#include "target_checks.h"
#include "wrong_label.h"

namespace farandole::trainer {
namespace {

/// Returns sum / count; NaN if `count` is 0.
double mean_of(double sum, double count) {
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

/// Base of the metrics that compare each label with the outputs of its classes.
template <class Scalar>
class ClassMetric : public Metric<Scalar> {
 public:
  bool counts() const final { return true; }
  DeviceForm device_form() const final { return DeviceForm::kGraphs; }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    if (data.classes() == 0) {
      throw InvalidArgument(
          fmt::format("the metric {} needs samples with classes, and {} have none", this->name(), what));
    }
    if (output.empty() || output.back() < data.classes()) {
      throw InvalidArgument(
          fmt::format("the metric {} needs one output per class: the model's output is {}, but {} have {} classes",
                      this->name(), describe(output), what, data.classes()));
    }
    if (elements(output) / output.back() != data.labels_per_sample()) {
      throw InvalidArgument(
          fmt::format("the metric {} needs one output per class for each label: the model's output is {}, but {} have "
                      "{} classes and {} labels per sample",
                      this->name(), describe(output), what, data.classes(), data.labels_per_sample()));
    }
  }

  void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
           VectorView<double> sums) const override {
    const std::int64_t classes = outputs.shape().empty() ? 0 : outputs.shape().back();
    const auto labels = static_cast<std::int64_t>(batch.labels.size());
    if (labels * classes != outputs.size()) {
      throw InvalidArgument(fmt::format("the metric {}: {} labels, but {} samples with outputs of shape {}",
                                        this->name(), labels, outputs.samples(), describe(outputs.shape())));
    }
    execution.require(outputs.space(), "the output of the model");
    execution.require(batch.labels.space(), "the vector of labels");
    if (execution.space().is_host()) {
      check_labels("the metric " + this->name(), batch.labels.host(), classes, outputs.sample_elements() / classes);
    }
    add_rows(execution, {outputs.data(), batch.labels.data(), labels, classes}, sums);
  }

 private:
  virtual void add_rows(const Execution& execution, const LabelledRows<Scalar>& rows,
                        VectorView<double> sums) const = 0;
};

template <class Scalar>
class TopK : public ClassMetric<Scalar> {
 public:
  explicit TopK(int k) : k_(k) {}

  std::string name() const override { return fmt::format("top_{}_accuracy", k_); }
  std::size_t sums(const Shape&) const final { return 2; }
  double value(std::span<const double> sums) const final { return mean_of(sums[0], sums[1]); }

  void check(const Shape& output, const Dataset& data, const std::string& what) const override {
    ClassMetric<Scalar>::check(output, data, what);
    if (output.back() >= k_) return;
    throw InvalidArgument(fmt::format("the metric {} needs at least {} outputs per label; the model's output is {}",
                                      this->name(), k_, describe(output)));
  }

 private:
  void add_rows(const Execution& execution, const LabelledRows<Scalar>& rows, VectorView<double> sums) const final {
    kernels_of<Scalar>(execution).losses().count_right(execution.workspace(), rows, k_, sums.data());
  }

  const int k_;
};

template <class Scalar>
class Accuracy : public TopK<Scalar> {
 public:
  Accuracy() : TopK<Scalar>(1) {}
  std::string name() const final { return "accuracy"; }
};

/// The accuracy that a trainer reports without being asked: ignores samples whose labels do not fit the outputs.
template <class Scalar>
class DefaultAccuracy final : public Accuracy<Scalar> {
 public:
  void check(const Shape&, const Dataset&, const std::string&) const override {}
  void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
           VectorView<double> sums) const override {
    if (static_cast<std::int64_t>(batch.labels.size()) * outputs.shape().back() != outputs.size()) return;
    Accuracy<Scalar>::add(execution, outputs, batch, sums);
  }
};

template <class Scalar>
class ConfusionMatrix final : public ClassMetric<Scalar> {
 public:
  std::string name() const override { return "confusion_matrix"; }
  std::size_t sums(const Shape& output) const override {
    const auto classes = static_cast<std::size_t>(output.empty() ? 0 : output.back());
    return classes * classes;
  }
  double value(std::span<const double> sums) const override {
    const auto classes = static_cast<std::size_t>(std::llround(std::sqrt(static_cast<double>(sums.size()))));
    double recall = 0, with_samples = 0;
    for (std::size_t label = 0; label < classes; ++label) {
      double labels = 0;
      for (const double count : sums.subspan(label * classes, classes)) labels += count;
      if (labels == 0) continue;
      recall += sums[label * classes + label] / labels;
      with_samples += 1;
    }
    return mean_of(recall, with_samples);
  }

 private:
  void add_rows(const Execution& execution, const LabelledRows<Scalar>& rows, VectorView<double> sums) const override {
    kernels_of<Scalar>(execution).losses().count_confusions(execution.workspace(), rows, sums.data());
  }
};

/// Base of the metrics that compare outputs with targets.
template <class Scalar>
class TargetMetric : public Metric<Scalar> {
 public:
  DeviceForm device_form() const final { return DeviceForm::kGraphs; }
  std::size_t sums(const Shape&) const final { return 2; }
  double value(std::span<const double> sums) const final { return mean_of(sums[0], sums[1]); }

  void check(const Shape& output, const Dataset& data, const std::string& what) const final {
    check_targets("the metric " + this->name(), output, data, what);
  }

  void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
           VectorView<double> sums) const final {
    check_batch_targets("the metric " + this->name(), execution, outputs, batch);
    add_samples(execution, {outputs.data(), batch.targets.data(), outputs.samples(), outputs.sample_elements()}, sums);
  }

 private:
  virtual void add_samples(const Execution& execution, const OutputsWithTargets<Scalar>& values,
                           VectorView<double> sums) const = 0;
};

template <class Scalar>
class MeanError final : public TargetMetric<Scalar> {
 public:
  explicit MeanError(bool squares) : squares_(squares) {}
  std::string name() const override { return squares_ ? "mean_squared_error" : "mean_absolute_error"; }

 private:
  void add_samples(const Execution& execution, const OutputsWithTargets<Scalar>& values,
                   VectorView<double> sums) const override {
    const TargetRule rule{squares_ ? TargetLossKind::kSquaredError : TargetLossKind::kAbsoluteError};
    kernels_of<Scalar>(execution).losses().add_errors(execution.workspace(), rule, values, sums.data());
  }

  const bool squares_;
};

template <class Scalar>
class BinaryAccuracy final : public TargetMetric<Scalar> {
 public:
  explicit BinaryAccuracy(double threshold) : threshold_(threshold) {}
  std::string name() const override {
    return threshold_ == 0 ? "binary_accuracy" : fmt::format("binary_accuracy, threshold {}", threshold_);
  }
  bool counts() const override { return true; }

 private:
  void add_samples(const Execution& execution, const OutputsWithTargets<Scalar>& values,
                   VectorView<double> sums) const override {
    kernels_of<Scalar>(execution).losses().count_right_sides(execution.workspace(), threshold_, values, sums.data());
  }

  const double threshold_;
};

std::string names_of(const std::vector<MetricResult>& metrics) {
  std::vector<std::string> names;
  for (const MetricResult& metric : metrics) names.push_back(metric.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const MetricResult* find_metric(const std::vector<MetricResult>& metrics, std::string_view name) {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const MetricResult& metric) { return metric.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

double metric_value(const std::vector<MetricResult>& metrics, std::string_view name) {
  if (const MetricResult* found = find_metric(metrics, name)) return found->value;
  throw InvalidArgument(fmt::format("there is no metric '{}'; the metrics are: {}", name, names_of(metrics)));
}

template <class Scalar>
std::vector<MetricPointer<Scalar>> default_metrics(const Shape& output, const Dataset& training) {
  if (training.classes() == 0 || output.empty() || output.back() < training.classes()) return {};
  return {std::make_shared<DefaultAccuracy<Scalar>>()};
}
template std::vector<MetricPointer<float>> default_metrics<float>(const Shape&, const Dataset&);
template std::vector<MetricPointer<double>> default_metrics<double>(const Shape&, const Dataset&);

template <class Scalar>
MetricPointer<Scalar> accuracy() {
  return std::make_shared<Accuracy<Scalar>>();
}
template <class Scalar>
MetricPointer<Scalar> top_k_accuracy(int k) {
  if (k < 1) throw InvalidArgument(fmt::format("top_k_accuracy: k is {}; it must be at least 1", k));
  return std::make_shared<TopK<Scalar>>(k);
}
template <class Scalar>
MetricPointer<Scalar> confusion_matrix() {
  return std::make_shared<ConfusionMatrix<Scalar>>();
}
template <class Scalar>
MetricPointer<Scalar> mean_absolute_error_metric() {
  return std::make_shared<MeanError<Scalar>>(/*squares=*/false);
}
template <class Scalar>
MetricPointer<Scalar> mean_squared_error_metric() {
  return std::make_shared<MeanError<Scalar>>(/*squares=*/true);
}
template <class Scalar>
MetricPointer<Scalar> binary_accuracy(double threshold) {
  if (std::isnan(threshold)) throw InvalidArgument("binary_accuracy: the threshold is NaN; it must be a number");
  return std::make_shared<BinaryAccuracy<Scalar>>(threshold);
}

template MetricPointer<float> accuracy<float>();
template MetricPointer<double> accuracy<double>();
template MetricPointer<float> top_k_accuracy<float>(int);
template MetricPointer<double> top_k_accuracy<double>(int);
template MetricPointer<float> confusion_matrix<float>();
template MetricPointer<double> confusion_matrix<double>();
template MetricPointer<float> mean_absolute_error_metric<float>();
template MetricPointer<double> mean_absolute_error_metric<double>();
template MetricPointer<float> mean_squared_error_metric<float>();
template MetricPointer<double> mean_squared_error_metric<double>();
template MetricPointer<float> binary_accuracy<float>(double);
template MetricPointer<double> binary_accuracy<double>(double);

}  // namespace farandole::trainer
