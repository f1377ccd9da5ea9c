// SPDX-License-Identifier: Apache-2.0
#include "parameter_updates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "farandole/core/error.h"
#include "kernels/device_form.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"

namespace farandole::trainer {
namespace {

constexpr const char* kAverage = "ema";
constexpr const char* kMaster = "master";

bool fits(const ParameterGroup& group, const std::string& parameter) {
  const std::string& pattern = group.pattern;
  if (pattern.ends_with('*')) return parameter.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
  return parameter == pattern;
}

void check(const ParameterGroup& group, const std::vector<NamedSpan>& layout) {
  if (!(group.rate_factor >= 0) || !std::isfinite(group.rate_factor)) {
    throw InvalidArgument(
        fmt::format("the factor of the learning rate of the parameters '{}' is {}; it must be at "
                    "least 0",
                    group.pattern, group.rate_factor));
  }
  if (group.weight_decay && !(*group.weight_decay >= 0 && *group.weight_decay < 1e30)) {
    throw InvalidArgument(fmt::format("the weight decay of the parameters '{}' is {}; it must be in [0, 1e30)",
                                      group.pattern, *group.weight_decay));
  }
  if (std::any_of(layout.begin(), layout.end(), [&](const NamedSpan& span) { return fits(group, span.name); })) return;
  std::vector<std::string> names;
  for (const NamedSpan& span : layout) names.push_back(span.name);
  throw InvalidArgument(
      fmt::format("no parameter fits the pattern '{}' of a parameter group, which must be a name, or the beginning of "
                  "names followed by '*'; the parameters are {}",
                  group.pattern, fmt::join(names, ", ")));
}

void check_states(const std::string& rule, const std::vector<std::string>& states) {
  std::set<std::string> names{kAverage, kMaster};
  for (const std::string& state : states) {
    if (!state.empty() && names.insert(state).second) continue;
    throw InvalidArgument(fmt::format(
        "the optimizer '{}' has a state named '{}'; states need different names other than '', '{}' and '{}'", rule,
        state, kAverage, kMaster));
  }
}

template <class T>
VectorView<T> view_of(OptimizerState& state) {
  return {state.values.as<T>(), state.values.count(), state.values.space()};
}

template <class T>
std::int64_t size_of(const VectorView<T>& view) {
  return static_cast<std::int64_t>(view.size());
}

/// `Master` is the type of the master values; the same type as Scalar: the parameters themselves.
template <class Scalar, class Master>
class UpdatesOfMaster final : public ParameterUpdates<Scalar> {
 public:
  UpdatesOfMaster(const OptimizerOptions& options, std::vector<NamedSpan> layout, std::size_t parameter_count,
                  const Execution& execution)
      : ParameterUpdates<Scalar>(options, std::move(layout), parameter_count),
        rule_(make_update_rule<Master>(options)) {
    check_memory(execution.space());
    const std::vector<std::string> of_rule = rule_->states();
    check_states(rule_->name(), of_rule);
    const auto add = [&](const std::string& state) {
      states_.push_back({state, allocate_zeros(execution, parameter_count, dtype_of<Master>)});
    };
    for (const std::string& state : of_rule) add(state);
    states_of_rule_ = states_.size();
    if (kHasMasters) add(kMaster);
    if (options.ema_decay > 0) add(kAverage);
  }

  Precision precision() const override { return {dtype_of<Scalar>, dtype_of<Master>}; }
  std::string rule_name() const override { return rule_->name(); }

  StepNumbers step_numbers(const UpdateStep& step) const override {
    StepNumbers numbers{.training_step = step.training_step, .learning_rate = step.learning_rate};
    std::ranges::copy(rule_->step_numbers(step.training_step - step.skipped_steps), std::begin(numbers.of_rule));
    return numbers;
  }

  void update(const Execution& execution, VectorView<Scalar> parameters, VectorView<const Scalar> gradients,
              const UpdateStep& step) override {
    check_vectors(execution, parameters, gradients);
    Workspace::Scope scope(execution.workspace());
    const VectorView<double> scale = scope.take<double>(1);
    set_scale(execution, gradients, step, scale);
    const Execution own = execution.with(precision());
    const double* const rule_numbers = numbers_of_rule(own, step, scope);
    const VectorView<Master> values = masters(parameters);
    const VectorView<Master> averages = options_.ema_decay > 0 ? view_of<Master>(states_.back()) : VectorView<Master>{};
    const Kernels<Master>& kernels = kernels_of<Master>(execution);
    if (!averages.empty() && step.training_step == 0) kernels.copy(size_of(values), values.data(), averages.data());
    std::vector<VectorView<Master>> states(states_of_rule_);
    for (const Member& member : members_) {
      if (!member.trainable) continue;
      const auto part = [&member](auto view) { return view.subview(member.span.first, member.span.count); };
      for (std::size_t i = 0; i < states_of_rule_; ++i) states[i] = part(view_of<Master>(states_[i]));
      Workspace::Scope of_member(execution.workspace());
      rule_->update(part(values), in_master_type(part(gradients), of_member), states,
                    {.execution = own,
                     .parameter = member.span,
                     .learning_rate = step.learning_rate * member.rate_factor,
                     .weight_decay = member.weight_decay,
                     .training_step = step.training_step,
                     .gradient_scale = scale,
                     .step_numbers = step.step_numbers,
                     .rate_factor = member.rate_factor,
                     .update = step.training_step - step.skipped_steps,
                     .rule_numbers = rule_numbers});
      if (!averages.empty()) {
        kernels.move_average(size_of(part(values)), static_cast<Master>(options_.ema_decay),
                             static_cast<Master>(1 - options_.ema_decay), part(values).data(), part(averages).data(),
                             step.loss_scale);
      }
      if constexpr (kHasMasters) convert(part(values).host(), part(parameters).host());
    }
  }

 private:
  using typename ParameterUpdates<Scalar>::Member;
  using ParameterUpdates<Scalar>::options_;
  using ParameterUpdates<Scalar>::count_;
  using ParameterUpdates<Scalar>::members_;
  using ParameterUpdates<Scalar>::states_;
  static constexpr bool kHasMasters = !std::is_same_v<Scalar, Master>;

  void check_vectors(const Execution& execution, VectorView<Scalar> parameters,
                     VectorView<const Scalar> gradients) const {
    execution.require(parameters.space(), "the parameter vector");
    execution.require(gradients.space(), "the gradient vector");
    if (parameters.size() == count_ && gradients.size() == count_) return;
    throw InvalidArgument(fmt::format("this optimizer updates {} parameters from as many gradients, got {} and {}",
                                      count_, parameters.size(), gradients.size()));
  }

  void check_memory(MemorySpace space) const {
    if (space.is_host()) return;
    if (kHasMasters) {
      throw Unsupported(
          fmt::format("master values of {} for a model of {} are computed in host memory only; leave "
                      "OptimizerOptions::master empty on devices",
                      farandole::name(dtype_of<Master>), farandole::name(dtype_of<Scalar>)));
    }
    const std::string problem =
        device_problem(fmt::format("the optimizer '{}'", rule_->name()), rule_->device_form(), DeviceForm::kStreams);
    if (!problem.empty()) throw Unsupported(problem);
  }

  /// Sets the factor on every gradient, with clipping.
  void set_scale(const Execution& execution, VectorView<const Scalar> gradients, const UpdateStep& step,
                 VectorView<double> scale) const {
    if (!(step.clip_norm >= 0)) {
      throw InvalidArgument(fmt::format("a clipping norm of {}; it must be at least 0", step.clip_norm));
    }
    Workspace::Scope scope(execution.workspace());
    const VectorView<double> squares = scope.take<double>(1);
    if (step.clip_norm > 0 || step.loss_scale != nullptr) this->sum_squares(execution, gradients, squares);
    kernels_of<Scalar>(execution).set_gradient_scale(step.gradient_scale,
                                                     {step.clip_norm, squares.data(), step.loss_scale}, scale.data());
  }

  /// UpdateFacts::rule_numbers. @param scope  keeps their memory
  const double* numbers_of_rule(const Execution& execution, const UpdateStep& step, Workspace::Scope& scope) const {
    if (step.loss_scale == nullptr) return nullptr;
    double* const numbers = scope.take<double>(kRuleNumbers).data();
    rule_->set_step_numbers(execution, {step.training_step, step.step_numbers, step.loss_scale}, numbers);
    return numbers;
  }

  /// Returns the master values. A value whose rounding is not the parameter follows the parameter, which the program
  /// has changed.
  VectorView<Master> masters(VectorView<Scalar> parameters) {
    if constexpr (!kHasMasters) {
      return parameters;
    } else {
      const VectorView<Master> values = view_of<Master>(states_[states_of_rule_]);
      const std::span<Master> to = values.host();
      const std::span<const Scalar> from = parameters.host();
      for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = static_cast<Scalar>(to[i]) == from[i] ? to[i] : static_cast<Master>(from[i]);
      }
      return values;
    }
  }

  static VectorView<const Master> in_master_type(VectorView<const Scalar> gradients, Workspace::Scope& scope) {
    if constexpr (!kHasMasters) {
      return gradients;
    } else {
      const VectorView<Master> converted = scope.take<Master>(gradients.size());
      convert(gradients.host(), converted.host());
      return converted;
    }
  }

  template <class From, class To>
  static void convert(std::span<From> from, std::span<To> to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<To>(from[i]);
  }

  std::unique_ptr<UpdateRule<Master>> rule_;
  std::size_t states_of_rule_ = 0;
};

}  // namespace

template <class Scalar>
ParameterUpdates<Scalar>::ParameterUpdates(const OptimizerOptions& options, std::vector<NamedSpan> layout,
                                           std::size_t parameter_count)
    : options_(options), count_(parameter_count) {
  if (!(options_.ema_decay >= 0 && options_.ema_decay < 1)) {
    throw InvalidArgument(
        fmt::format("the decay of the parameters' average is {}; it must be in [0, 1)", options_.ema_decay));
  }
  for (const ParameterGroup& group : options_.groups) check(group, layout);
  for (NamedSpan& span : layout) add_member(std::move(span));
}

template <class Scalar>
void ParameterUpdates<Scalar>::add_member(NamedSpan span) {
  double rate_factor = 1, weight_decay = span.decays ? options_.weight_decay : 0;
  bool trainable = true;
  const auto group = std::find_if(options_.groups.begin(), options_.groups.end(),
                                  [&](const ParameterGroup& each) { return fits(each, span.name); });
  if (group != options_.groups.end()) {
    rate_factor = group->rate_factor;
    weight_decay = group->weight_decay.value_or(weight_decay);
    trainable = group->trainable;
  }
  members_.push_back({std::move(span), rate_factor, weight_decay, trainable});
}

template <class Scalar>
void ParameterUpdates<Scalar>::sum_squares(const Execution& execution, VectorView<const Scalar> gradients,
                                           VectorView<double> sum) const {
  const Kernels<Scalar>& kernels = kernels_of<Scalar>(execution);
  clear(execution, sum);
  const auto is_trainable = [](const Member& member) { return member.trainable; };
  if (std::all_of(members_.begin(), members_.end(), is_trainable)) {
    return kernels.add_squares(execution.workspace(), size_of(gradients), gradients.data(), sum.data());
  }
  for (const Member& member : members_) {
    if (!member.trainable) continue;
    kernels.add_squares(execution.workspace(), static_cast<std::int64_t>(member.span.count),
                        gradients.data() + member.span.first, sum.data());
  }
}

template <class Scalar>
double ParameterUpdates<Scalar>::gradient_norm(const Execution& execution, VectorView<const Scalar> gradients) const {
  Workspace::Scope scope(execution.workspace());
  const VectorView<double> squares = scope.take<double>(1);
  sum_squares(execution, gradients, squares);
  return std::sqrt(to_host<double>(execution, squares).front());
}

template <class Scalar>
std::unique_ptr<ParameterUpdates<Scalar>> make_parameter_updates(const OptimizerOptions& options,
                                                                 std::vector<NamedSpan> layout,
                                                                 std::size_t parameter_count,
                                                                 const Execution& execution) {
  const DType own = dtype_of<Scalar>, master = options.master.value_or(own);
  if (master == own) {
    return std::make_unique<UpdatesOfMaster<Scalar, Scalar>>(options, std::move(layout), parameter_count, execution);
  }
  if constexpr (std::is_same_v<Scalar, float>) {
    if (master == DType::kF64) {
      return std::make_unique<UpdatesOfMaster<float, double>>(options, std::move(layout), parameter_count, execution);
    }
  }
  throw InvalidArgument(fmt::format("the optimizer's master values cannot be {} for a model of {}; choose {}",
                                    farandole::name(master), farandole::name(own),
                                    own == DType::kF32 ? "f32 or f64" : "f64"));
}

template class ParameterUpdates<float>;
template class ParameterUpdates<double>;
template std::unique_ptr<ParameterUpdates<float>> make_parameter_updates(const OptimizerOptions&,
                                                                         std::vector<NamedSpan>, std::size_t,
                                                                         const Execution&);
template std::unique_ptr<ParameterUpdates<double>> make_parameter_updates(const OptimizerOptions&,
                                                                          std::vector<NamedSpan>, std::size_t,
                                                                          const Execution&);

}  // namespace farandole::trainer
