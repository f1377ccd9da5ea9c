// SPDX-License-Identifier: Apache-2.0
// The metrics of a training. Their sums lie one behind the other in a vector, which the replicas reduce.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "farandole/collectives/agreement.h"
#include "farandole/trainer/checkpoint.h"
#include "farandole/trainer/metric.h"
#include "farandole/trainer/model.h"

namespace farandole::trainer {

/// Largest number of sums of all metrics of a trainer: 8 MiB in each allreduce. The manifest of a checkpoint holds the
/// sums as text.
inline constexpr std::size_t kMaxMetricSums = std::size_t{1} << 20;

/// Accuracy if the samples have classes and the model has an output for each class; else no metric.
template <class Scalar>
std::vector<MetricPointer<Scalar>> default_metrics(const Shape& output, const Dataset& training);

/// @throws InvalidArgument  a metric is null
template <class Scalar>
std::vector<std::string> names_of(const std::vector<MetricPointer<Scalar>>& metrics);

/// Names of the metrics, which must be the same on all ranks. @throws InvalidArgument  a metric is null
template <class Scalar>
std::vector<SharedFact> facts_of(const std::vector<MetricPointer<Scalar>>& metrics);

/// Checks that the names differ, and that the metrics fit the model and the data. @param test  may be null
/// @throws InvalidArgument
template <class Scalar>
void check_metrics(const std::vector<MetricPointer<Scalar>>& metrics, const Shape& output, const Dataset& training,
                   const Dataset* test);

/// Const functions are thread-safe. They call code of the program, which may throw.
template <class Scalar>
class MetricSums {
 public:
  /// The sums of a metric in the vector of all sums.
  struct Part {
    std::size_t first = 0, count = 0;
    bool counts = false;  ///< Metric::counts
  };

  /// @param metrics  as `check_metrics` has accepted them
  MetricSums(std::vector<MetricPointer<Scalar>> metrics, const Shape& output);

  std::size_t size() const { return size_; }
  const std::vector<Part>& parts() const { return parts_; }
  /// Checks that the metrics fit a data set. @throws InvalidArgument
  void check(const Shape& output, const Dataset& data, const std::string& what) const;
  /// Adds a batch to the vector of all sums.
  void add(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
           VectorView<double> sums) const;
  /// @param sums  of all metrics; empty: zeros
  std::vector<MetricResult> results(std::span<const double> sums) const;

  /// @param sums  of all metrics; empty: zeros
  std::vector<EpochMetric> saved(std::span<const double> sums) const;
  /// Returns the vector of all sums on every rank. A metric that the checkpoint lacks, or that has another number of
  /// sums there, begins with zeros. Collective; blocks. @param saved  of rank 0's checkpoint
  std::vector<double> restored(Communicator& communicator, const std::vector<EpochMetric>& saved) const;

 private:
  std::vector<MetricPointer<Scalar>> metrics_;
  std::vector<Part> parts_;  // of each metric
  std::size_t size_ = 0;
};

}  // namespace farandole::trainer
