// SPDX-License-Identifier: Apache-2.0
// The work of an Optimizer: groups of parameters, states, master values, and the update of each parameter.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/trainer/optimizer.h"

namespace farandole::trainer {

/// The updates of a model's parameters of type Scalar, whatever the type of the master values. Functions as
/// Optimizer's.
template <class Scalar>
class ParameterUpdates {
 public:
  ParameterUpdates(const OptimizerOptions& options, std::vector<NamedSpan> layout, std::size_t parameter_count);
  virtual ~ParameterUpdates() = default;

  virtual void update(const Execution& execution, VectorView<Scalar> parameters, VectorView<const Scalar> gradients,
                      const UpdateStep& step) = 0;
  virtual StepNumbers step_numbers(const UpdateStep& step) const = 0;
  virtual Precision precision() const = 0;
  virtual std::string rule_name() const = 0;
  double gradient_norm(const Execution& execution, VectorView<const Scalar> gradients) const;
  std::vector<OptimizerState>& states() { return states_; }
  const OptimizerOptions& options() const { return options_; }

 protected:
  /// A parameter with the options of its group.
  struct Member {
    NamedSpan span;
    double rate_factor, weight_decay;
    bool trainable;
  };

  /// Sets `*sum`, in the memory of the execution, to the sum of the squares of all gradients that are not frozen.
  void sum_squares(const Execution& execution, VectorView<const Scalar> gradients, VectorView<double> sum) const;

  const OptimizerOptions options_;
  const std::size_t count_;  // of all parameters
  std::vector<Member> members_;
  std::vector<OptimizerState> states_;  // the rule's, then the master values, then the average

 private:
  void add_member(NamedSpan span);
};

/// @throws InvalidArgument, Unsupported  as the constructor of Optimizer
template <class Scalar>
std::unique_ptr<ParameterUpdates<Scalar>> make_parameter_updates(const OptimizerOptions& options,
                                                                 std::vector<NamedSpan> layout,
                                                                 std::size_t parameter_count,
                                                                 const Execution& execution);

}  // namespace farandole::trainer
