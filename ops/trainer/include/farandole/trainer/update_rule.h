// SPDX-License-Identifier: Apache-2.0
// The interface of update rules. Implement UpdateRule to add an optimizer of your own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/model.h"
#include "farandole/trainer/step_numbers.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Circumstances of an update of a parameter.
struct UpdateFacts {
  const Execution& execution;      ///< where and how to compute, and scratch memory
  const NamedSpan& parameter;      ///< name and shape of the parameter
  double learning_rate = 0;        ///< with the factor of the parameter's group
  double weight_decay = 0;         ///< 0 for a parameter that does not decay
  std::int64_t training_step = 0;  ///< 0-based
  /// Factor on every gradient, for example for clipping: one number in the memory of `execution`, because the norm of
  /// gradients on a device is known on the device first. NaN: the training step is skipped because of its loss scale;
  /// the rule must leave values and states as they are.
  VectorView<const double> gradient_scale;
  /// In an update that is captured into a graph: the numbers of the training step at hand, on the device. They replace
  /// `training_step`, and `learning_rate` by `step_numbers->learning_rate * rate_factor`. Null: no graph.
  const StepNumbers* step_numbers = nullptr;
  double rate_factor = 1;  ///< of the parameter's group
  /// 0-based number of the update: `training_step` less the training steps whose update was skipped. With a loss scale
  /// only the device knows how many were: see `rule_numbers`.
  std::int64_t update = 0;
  /// Null without a loss scale. Else `UpdateRule::step_numbers` of this update, kRuleNumbers of them in the memory of
  /// `execution`, which replace those of `update` and of `step_numbers`.
  const double* rule_numbers = nullptr;

  /// The factor, for rules that compute in host memory. @throws InvalidArgument  it lies in the memory of a device
  double scale() const { return gradient_scale.host().front(); }
};

/// Computes new values of a parameter from its gradient. An Optimizer calls the rule once per training step for each
/// trainable parameter, and keeps the rule's states:
///
///     class Sign : public UpdateRule<float> {
///       std::string name() const override { return "sign"; }
///       std::vector<std::string> states() const override { return {}; }
///       void update(VectorView<float> values, VectorView<const float> gradients, std::span<const VectorView<float>>,
///                   const UpdateFacts& facts) override {
///         const auto rate = static_cast<float>(facts.learning_rate);
///         const std::span<float> to = values.host();
///         const std::span<const float> slopes = gradients.host();
///         for (std::size_t i = 0; i < to.size(); ++i) to[i] -= std::copysign(rate, slopes[i]);
///       }
///     };
///
/// `Scalar` is the type of the master values (OptimizerOptions::master), by default the model's. All ranks must compute
/// the same values from the same arguments, and everything that a rule remembers from step to
/// step must be in its states, so that checkpoints hold it. Not thread-safe.
template <class Scalar>
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Name of the rule: "sgd". Ranks compare it, and a checkpoint can only be resumed with a rule of the same name.
  virtual std::string name() const = 0;
  /// Names of the states: {"first_moment", "second_moment"}. A state has an element for each element of the
  /// parameters, and is 0 before the first update.
  virtual std::vector<std::string> states() const = 0;
  /// What `update` can do on devices. The default is host memory only; an optimizer for parameters on a device refuses
  /// such rules.
  virtual DeviceForm device_form() const { return DeviceForm::kNone; }
  /// Numbers that `update` derives from the number of the update, such as Adam's corrections. An update that is
  /// captured into a graph reads them in StepNumbers::of_rule.
  /// @param update  0-based; skipped training steps do not count
  virtual std::array<double, kRuleNumbers> step_numbers(std::int64_t update) const {
    (void)update;
    return {};
  }
  /// With a loss scale: sets `numbers`, kRuleNumbers of them in the memory of `execution`, to the step_numbers of the
  /// update `count.training_step - count.loss_scale->skipped_steps`. On a device enqueues this. Called once per update,
  /// before the parameters' updates; the default leaves the numbers as they are.
  virtual void set_step_numbers(const Execution& execution, const UpdateCount& count, double* numbers) const {
    (void)execution, (void)count, (void)numbers;
  }
  /// Updates the values of a parameter in place.
  /// @param gradients  as many as values   @param states  in the order of `states()`, each as long as `values`
  virtual void update(VectorView<Scalar> values, VectorView<const Scalar> gradients,
                      std::span<const VectorView<Scalar>> states, const UpdateFacts& facts) = 0;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
