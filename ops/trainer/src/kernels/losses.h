// SPDX-License-Identifier: Apache-2.0
// The computations of losses and metrics, part of Kernels.
#pragma once

#include <cstdint>
#include <span>

#include "farandole/trainer/execution.h"
#include "kernels/target_formulas.h"

namespace farandole::trainer {

/// Rows of logits, and the class of each row.
template <class Scalar>
struct LabelledRows {
  const Scalar* logits = nullptr;  ///< `rows` rows of `classes`
  const std::int32_t* labels = nullptr;
  std::int64_t rows = 0, classes = 0;
};

/// Rows of logits, and the probability of each class for each row.
template <class Scalar>
struct RowsWithProbabilities {
  const Scalar *logits = nullptr, *probabilities = nullptr;  ///< `rows` rows of `classes`
  std::int64_t rows = 0, classes = 0;
};

/// How a cross-entropy weights its rows.
struct CrossEntropyTerms {
  std::int64_t rows_per_sample = 1;
  double smoothing = 0;
  /// One for each class; there may be fewer classes than logits. Empty: 1 for each. In host memory always: kernels of a
  /// device keep a copy.
  std::span<const double> class_weights = {};
  const float* sample_weights = nullptr;  ///< one for each sample; null: 1 for each
};

/// Outputs of samples, and the numbers that they are compared with.
template <class Scalar>
struct OutputsWithTargets {
  const Scalar *outputs = nullptr, *targets = nullptr;  ///< `samples` rows of `width`
  std::int64_t samples = 0, width = 0;

  std::int64_t count() const { return samples * width; }
};

/// As Kernels: all addresses lie in one memory. Sums are in double, in an order that depends on the sizes only.
template <class Scalar>
class LossKernels {
 public:
  virtual ~LossKernels() = default;

  // Losses: each adds the sum of the samples' losses to `*sum`, and sets `gradient`, unless it is null, to `scale`
  // times its derivatives.

  /// @throws InvalidArgument  a label is no class; in host memory only, on a device its row's loss is NaN
  virtual void cross_entropy(Workspace& workspace, const LabelledRows<Scalar>& rows, const CrossEntropyTerms& terms,
                             double scale, Scalar* gradient, double* sum) const = 0;
  /// The loss of a row is weight * (sum of t * (log(sum of exp(z)) - z)), where t are the probabilities, smoothed as
  /// those of labels, and weight is the sample's times the mean of the classes' weights by their probabilities. With
  /// probabilities of 0 and 1 the result is that of labels. @pre  a sample is a row
  virtual void soft_cross_entropy(Workspace& workspace, const RowsWithProbabilities<Scalar>& rows,
                                  const CrossEntropyTerms& terms, double scale, Scalar* gradient,
                                  double* sum) const = 0;
  /// The loss of a sample is the mean over its targets.
  /// @param sample_weights  null: 1 for each
  virtual void target_loss(Workspace& workspace, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                           const float* sample_weights, double scale, Scalar* gradient, double* sum) const = 0;

  // Metrics.

  /// Adds to sums[0] the number of rows whose label is among the `k` largest logits, and to sums[1] the number of rows.
  virtual void count_right(Workspace& workspace, const LabelledRows<Scalar>& rows, std::int64_t k,
                           double* sums) const = 0;
  /// Adds the number of rows with label l and predicted class p to counts[l * classes + p], for all l and p.
  virtual void count_confusions(Workspace& workspace, const LabelledRows<Scalar>& rows, double* counts) const = 0;
  /// Adds to sums[0] the mean loss of each sample, and to sums[1] the number of samples.
  virtual void add_errors(Workspace& workspace, const TargetRule& rule, const OutputsWithTargets<Scalar>& values,
                          double* sums) const = 0;
  /// Adds to sums[0] how many outputs are above `threshold` where the target is above 0.5, or neither is, and to
  /// sums[1] the number of outputs.
  virtual void count_right_sides(Workspace& workspace, double threshold, const OutputsWithTargets<Scalar>& values,
                                 double* sums) const = 0;
};

}  // namespace farandole::trainer
