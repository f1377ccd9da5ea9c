// SPDX-License-Identifier: Apache-2.0
// Losses: the numbers that a training makes small. Implement Loss to add a loss of your own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/dataset.h"
#include "farandole/trainer/execution.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A loss of each sample, and its gradient. The trainer minimises the mean over the samples of a global batch. With
/// weights it minimises the sum of weight * loss, divided by the number of samples, as Keras does.
///
///     class LogCosh final : public Loss<float> {
///      public:
///       std::string name() const override { return "log_cosh"; }
///       void evaluate(const Execution& execution, const Tensor<float>& outputs, const BatchView<float>& batch,
///                     double scale, Tensor<float>* gradient, VectorView<double> sum) const override;
///     };
///
/// All replicas of a process may share an object, so `evaluate` must be thread-safe. The result must not depend on how
/// samples are distributed over batches.
template <class Scalar>
class Loss {
 public:
  virtual ~Loss() = default;
  /// Kind and settings: "huber, delta 1". The trainer compares the name across ranks.
  virtual std::string name() const = 0;
  /// Checks that the loss can compare a model's outputs with the data. The trainer calls this function before training.
  /// The default accepts everything.
  /// @param output  shape of the model's output for a sample   @param what  name of the data for messages, such as
  /// "the training data"   @throws InvalidArgument  says what was expected
  virtual void check(const Shape& output, const Dataset& data, const std::string& what) const {
    (void)output, (void)data, (void)what;
  }
  /// What `evaluate` can do on devices. The default is host memory only; a trainer on devices refuses such a loss.
  virtual DeviceForm device_form() const { return DeviceForm::kNone; }
  /// Adds the samples' losses to the number `sum`: `sum.host()[0] += …`. If `gradient` is not null, also resizes
  /// `*gradient` to `outputs` and writes `scale` times the derivative of the sum of the losses by each output to it.
  /// The trainer reads the sum later, see TrainerOptions::check_every.
  /// @param execution  where and how to compute; all memory of the call lies there
  virtual void evaluate(const Execution& execution, const Tensor<Scalar>& outputs, const BatchView<Scalar>& batch,
                        double scale, Tensor<Scalar>* gradient, VectorView<double> sum) const = 0;
};

template <class Scalar>
using LossPointer = std::shared_ptr<const Loss<Scalar>>;

/// Returns the sum of the samples' losses, for loops of your own. Waits until the loss is computed.
template <class Scalar>
FARANDOLE_API double loss_sum(const Loss<Scalar>& loss, const Execution& execution, const Tensor<Scalar>& outputs,
                              const std::type_identity_t<BatchView<Scalar>>& batch, double scale,
                              std::type_identity_t<Tensor<Scalar>>* gradient);

/// Returns the sum of the softmax cross-entropies of a batch. Stores scale * d(sum of losses)/d(logits) in `gradient`,
/// unless `gradient` is null.
/// @param labels  a class per sample, in [0, classes); with logits of shape {length, classes}, `length` classes per
/// sample
template <class Scalar>
FARANDOLE_API double softmax_cross_entropy(const Tensor<Scalar>& logits, std::span<const std::int32_t> labels,
                                           double scale, Tensor<Scalar>* gradient);

struct CrossEntropyOptions {
  /// The target is 1 - smoothing + smoothing / classes for the sample's class, and smoothing / classes for every other
  /// class: at least 0, below 1.
  double label_smoothing = 0;
  /// Factor of the loss of the samples of each class; empty: 1 for all. With label smoothing this differs from PyTorch,
  /// which multiplies the share of every class in the target by that class's factor.
  std::vector<double> class_weights = {};
};
/// For samples with classes and a model with one output (logit) per class: log(sum of exp(z)) - sum of target * z. For
/// samples with `length` labels the model's output is {length, classes}, and a sample's loss is the mean over its
/// labels. With Dataset::targets_are_probabilities the loss uses the targets instead of the labels; the weight of such
/// a sample's classes is the mean by these probabilities.
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> cross_entropy_loss(CrossEntropyOptions options = {});
/// For samples with targets in [0, 1] and a model with one logit per target: the mean over the targets of
/// log(1 + exp(z)) - target * z.
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> binary_cross_entropy_loss();
/// For samples with targets: the mean over the targets of (output - target)^2.
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> mean_squared_error();
/// For samples with targets: the mean over the targets of |output - target|. The derivative at 0 is 0.
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> mean_absolute_error();
/// For samples with targets: the mean over the targets of d^2 / 2 where |d| <= delta, and delta * (|d| - delta / 2)
/// elsewhere, with d = output - target. @throws InvalidArgument  `delta` is not a finite number above 0
template <class Scalar>
FARANDOLE_API LossPointer<Scalar> huber_loss(double delta = 1);

}  // namespace trainer
}  // namespace FARANDOLE_API
