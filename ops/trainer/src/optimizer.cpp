// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::array kBuiltInOptimizers{OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW};
constexpr const char* kAverage = "ema";

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
  std::set<std::string> names{kAverage};
  for (const std::string& state : states) {
    if (!state.empty() && names.insert(state).second) continue;
    throw InvalidArgument(
        fmt::format("the optimizer '{}' has a state named '{}'; states need different names other than '' and '{}'",
                    rule, state, kAverage));
  }
}

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
    : options_(options), rule_(make_update_rule<Scalar>(options)) {
  if (!(options_.ema_decay >= 0 && options_.ema_decay < 1)) {
    throw InvalidArgument(
        fmt::format("the decay of the parameters' average is {}; it must be in [0, 1)", options_.ema_decay));
  }
  for (const ParameterGroup& group : options_.groups) check(group, layout);
  const std::vector<std::string> of_rule = rule_->states();
  check_states(rule_->name(), of_rule);
  for (const std::string& state : of_rule) states_.push_back({state, std::vector<Scalar>(parameter_count)});
  if (options_.ema_decay > 0) states_.push_back({kAverage, std::vector<Scalar>(parameter_count)});
  for (NamedSpan& span : layout) add_member(std::move(span));
}

template <class Scalar>
void Optimizer<Scalar>::add_member(NamedSpan span) {
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
void Optimizer<Scalar>::update(std::span<Scalar> parameters, std::span<const Scalar> gradients, double learning_rate,
                               double gradient_scale, std::int64_t training_step) {
  const std::span<Scalar> averages = average();
  if (!averages.empty() && training_step == 0) std::copy(parameters.begin(), parameters.end(), averages.begin());
  const std::size_t states_of_rule = states_.size() - (averages.empty() ? 0 : 1);
  std::vector<std::span<Scalar>> states(states_of_rule);
  for (const Member& member : members_) {
    if (!member.trainable) continue;
    const auto part = [&member](auto values) { return values.subspan(member.span.first, member.span.count); };
    for (std::size_t i = 0; i < states_of_rule; ++i) states[i] = part(std::span(states_[i].values));
    rule_->update(part(parameters), part(gradients), states,
                  {.parameter = member.span,
                   .learning_rate = learning_rate * member.rate_factor,
                   .weight_decay = member.weight_decay,
                   .gradient_scale = gradient_scale,
                   .training_step = training_step});
    if (!averages.empty()) move_average(part(averages), part(parameters));
  }
}

template <class Scalar>
void Optimizer<Scalar>::move_average(std::span<Scalar> average, std::span<const Scalar> parameters) const {
  const auto keep = static_cast<Scalar>(options_.ema_decay), add = static_cast<Scalar>(1 - options_.ema_decay);
  for (std::size_t i = 0; i < average.size(); ++i) average[i] = keep * average[i] + add * parameters[i];
}

template <class Scalar>
double Optimizer<Scalar>::gradient_norm(std::span<const Scalar> gradients) const {
  const auto is_trainable = [](const Member& member) { return member.trainable; };
  if (std::all_of(members_.begin(), members_.end(), is_trainable)) return global_norm<Scalar>(gradients);
  double squares = 0;
  for (const Member& member : members_) {
    if (!member.trainable) continue;
    const double norm = global_norm<Scalar>(gradients.subspan(member.span.first, member.span.count));
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

template <class Scalar>
std::span<Scalar> Optimizer<Scalar>::average() {
  return options_.ema_decay > 0 ? std::span(states_.back().values) : std::span<Scalar>{};
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
