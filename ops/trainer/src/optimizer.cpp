// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "farandole/core/error.h"
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
                             std::size_t parameter_count)
    : updates_(make_parameter_updates<Scalar>(options, std::move(layout), parameter_count)) {}
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
double Optimizer<Scalar>::gradient_norm(const Execution& execution, VectorView<const Scalar> gradients) const {
  execution.require(gradients.space(), "the gradient vector");
  return updates_->gradient_norm(gradients.host());
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
  // Eight interleaved sums: one fixed order that still vectorises.
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i)
    sums[i % sums.size()] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

double clipping_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

template class Optimizer<float>;
template class Optimizer<double>;
template double global_norm(std::span<const float>);
template double global_norm(std::span<const double>);

}  // namespace farandole::trainer
