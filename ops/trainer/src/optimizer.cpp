// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "farandole/core/error.h"
#include "kernels/kernels.h"
#include "parameter_updates.h"

namespace farandole::trainer {
namespace {

constexpr std::array kBuiltInOptimizers{OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW};

}  // namespace

std::string_view name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kOwn:
      return "own";
  }
  throw InternalError("an optimizer without a name");
}

OptimizerKind parse_optimizer(std::string_view text) {
  for (const OptimizerKind kind : kBuiltInOptimizers) {
    if (text == name(kind)) return kind;
  }
  throw InvalidArgument(fmt::format("there is no optimizer '{}'; choose sgd, adam or adamw", text));
}

template <class Scalar>
Optimizer<Scalar>::Optimizer(const OptimizerOptions& options, std::vector<NamedSpan> layout,
                             std::size_t parameter_count, const Execution& execution)
    : updates_(make_parameter_updates<Scalar>(options, std::move(layout), parameter_count, execution)) {}
template <class Scalar>
Optimizer<Scalar>::~Optimizer() = default;
template <class Scalar>
Optimizer<Scalar>::Optimizer(Optimizer&&) noexcept = default;

template <class Scalar>
void Optimizer<Scalar>::update(const Execution& execution, VectorView<Scalar> parameters,
                               VectorView<const Scalar> gradients, const UpdateStep& step) {
  updates_->update(execution, parameters, gradients, step);
}
template <class Scalar>
StepNumbers Optimizer<Scalar>::step_numbers(const UpdateStep& step) const {
  return updates_->step_numbers(step);
}
template <class Scalar>
double Optimizer<Scalar>::gradient_norm(const Execution& execution, VectorView<const Scalar> gradients) const {
  execution.require(gradients.space(), "the gradient vector");
  return updates_->gradient_norm(execution, gradients);
}
template <class Scalar>
std::vector<OptimizerState>& Optimizer<Scalar>::states() {
  return updates_->states();
}
template <class Scalar>
BufferView Optimizer<Scalar>::average() {
  return options().ema_decay > 0 ? states().back().values.view() : BufferView{};
}
template <class Scalar>
Precision Optimizer<Scalar>::precision() const {
  return updates_->precision();
}
template <class Scalar>
const OptimizerOptions& Optimizer<Scalar>::options() const {
  return updates_->options();
}
template <class Scalar>
std::string Optimizer<Scalar>::rule_name() const {
  return updates_->rule_name();
}

template <class Scalar>
double global_norm(std::span<const Scalar> values) {
  double squares = 0;
  Workspace unused;
  host_kernels<Scalar>().add_squares(unused, static_cast<std::int64_t>(values.size()), values.data(), &squares);
  return std::sqrt(squares);
}

double clipping_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

template class Optimizer<float>;
template class Optimizer<double>;
template double global_norm(std::span<const float>);
template double global_norm(std::span<const double>);

}  // namespace farandole::trainer
