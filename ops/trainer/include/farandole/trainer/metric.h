// SPDX-License-Identifier: Apache-2.0
// Metrics: numbers that a training reports beside the loss. Implement Metric to add a metric of your own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/execution.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Value of a metric over the samples of a report.
struct MetricResult {
  std::string name;
  double value = 0;               ///< NaN if there were no samples
  std::vector<double> sums = {};  ///< the metric's sums over all samples, such as a confusion matrix
};

/// Returns the result of a name; null if there is no metric of this name.
const MetricResult* find_metric(const std::vector<MetricResult>& metrics, std::string_view name);
/// Returns the value of a metric. @throws InvalidArgument  there is no metric of this name (lists the metrics)
double metric_value(const std::vector<MetricResult>& metrics, std::string_view name);

/// A number that is computed from sums over samples, such as right answers / answers. The trainer adds the sums of all
/// replicas, so the value counts every sample once: it is not a mean of the batches' means. A maximum or a median
/// cannot be a Metric.
///
///     /// Fraction of the predictions that are at most 0.1 away from the target.
///     class Close final : public Metric<float> {
///      public:
///       std::string name() const override { return "close"; }
///       std::size_t sums(const Shape&) const override { return 2; }
///       bool counts() const override { return true; }
///       void add(const Execution&, const Tensor<float>& outputs, const BatchView<float>& batch,
///                VectorView<double> sums) const override {
///         const std::span<const float> found = outputs.host(), right = batch.targets.host();
///         int close = 0;
///         for (std::size_t i = 0; i < found.size(); ++i) close += std::abs(found[i] - right[i]) <= 0.1F;
///         sums.host()[0] += close;
///         sums.host()[1] += static_cast<double>(found.size());
///       }
///       double value(std::span<const double> sums) const override { return sums[0] / sums[1]; }
///     };
///
/// In training a metric sees the outputs from which the loss was computed, before the update: those of a model that
/// changes from batch to batch, with dropout and batch statistics. In an evaluation it sees the final model's.
///
/// All replicas of a process may share an object, so const functions must be thread-safe. The sums must not depend on
/// how samples are distributed over batches. The weights of samples belong to the loss: no built-in metric uses them.
template <class Scalar>
class Metric {
 public:
  virtual ~Metric() = default;
  /// Name in reports and checkpoints: "accuracy". Unique in a trainer. The trainer compares names across ranks.
  virtual std::string name() const = 0;
  /// Checks that the metric can compare a model's outputs with the data. The trainer calls this function before
  /// training, and before an evaluation. The default accepts everything.
  /// @param output  shape of the model's output for a sample   @param what  name of the data for messages, such as
  /// "the training data"   @throws InvalidArgument  says what was expected
  virtual void check(const Shape& output, const Dataset& data, const std::string& what) const {
    (void)output, (void)data, (void)what;
  }
  /// What `add` can do on devices. The default is host memory only; a trainer on devices refuses such a metric.
  virtual DeviceForm device_form() const { return DeviceForm::kNone; }
  /// Number of sums: 2 for right answers and answers. All metrics of a trainer may have 2^20 sums together. The sums
  /// travel in each training step's allreduce: 8 bytes each.
  virtual std::size_t sums(const Shape& output) const = 0;
  /// True if every sum is a whole number below 2^53. The order of additions is of no importance then, and an evaluation
  /// needs memory for the sums once instead of once per batch.
  virtual bool counts() const { return false; }
  /// Adds the samples of a batch to `sums`. @param execution  where and how to compute; all memory of the call lies
  /// there
  virtual void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
                   VectorView<double> sums) const = 0;
  /// Returns the metric's value; NaN without samples.
  virtual double value(std::span<const double> sums) const = 0;
};

template <class Scalar>
using MetricPointer = std::shared_ptr<const Metric<Scalar>>;

// Metrics for samples with classes. The model's output has one number per class in its last dimension: {classes}, or
// {length, classes} for samples with `length` labels. Every label counts once. Among equal outputs the first class is
// the larger one, and a label whose output is NaN is wrong.

/// "accuracy": the fraction of labels whose class has the largest output. Sums: right labels, labels.
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> accuracy();
/// "top_5_accuracy" for k = 5: the fraction of labels whose class is among the k largest outputs. Sums: right labels,
/// labels. @throws InvalidArgument  `k` is less than 1
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> top_k_accuracy(int k);
/// "confusion_matrix": the sums are the matrix, laid out by rows; the row is the label, the column the class with the
/// largest output. Value: the mean, over the classes that have samples, of the recall, which is the fraction of the
/// class's labels that are right ("balanced accuracy"). Cost: classes^2 sums.
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> confusion_matrix();

// Metrics for samples with targets, which have the shape of the model's output.

/// "mean_absolute_error": the mean of |output - target|. Sums: the sum over samples of the mean over the sample's
/// targets, samples.
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> mean_absolute_error_metric();
/// "mean_squared_error": the mean of (output - target)^2. Sums: as mean_absolute_error_metric.
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> mean_squared_error_metric();
/// "binary_accuracy", or "binary_accuracy, threshold 0.5": the fraction of targets that are on the outputs' side:
/// output above `threshold` and target above 1/2, or neither. Sums: right targets, targets.
/// @param threshold  0 for logits, as binary_cross_entropy_loss takes; 0.5 for a model that ends in a sigmoid
/// @throws InvalidArgument  `threshold` is NaN
template <class Scalar>
FARANDOLE_API MetricPointer<Scalar> binary_accuracy(double threshold = 0);

}  // namespace trainer
}  // namespace FARANDOLE_API
