// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::array kKinds{OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW};

void check_range(const char* what, double value, double low, double high, const char* range) {
  if (!(value >= low && value < high))
    throw InvalidArgument(fmt::format("{} is {}; it must be in {}", what, value, range));
}

void check(const OptimizerOptions& options) {
  check_range("momentum", options.momentum, 0, 1, "[0, 1)");
  check_range("beta1", options.beta1, 0, 1, "[0, 1)");
  check_range("beta2", options.beta2, 0, 1, "[0, 1)");
  check_range("weight decay", options.weight_decay, 0, 1e30, "[0, 1e30)");
  check_range("epsilon", options.epsilon, 1e-300, 1, "(0, 1)");
  if (options.nesterov && options.momentum == 0)
    throw InvalidArgument("Nesterov's form needs a momentum greater than 0");
}

// The loops below are memory-bound. Their pointers do not alias, so the compiler can vectorise the loops.

template <class Scalar>
struct SgdFactors {
  Scalar rate, momentum, decay, scale;
};

template <class Scalar, bool kNesterov>
void sgd(Scalar* __restrict parameter, const Scalar* __restrict gradient, Scalar* __restrict velocity,
         std::size_t count, SgdFactors<Scalar> f) {
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar g = gradient[i] * f.scale + f.decay * parameter[i];
    const Scalar v = f.momentum * velocity[i] + g;
    velocity[i] = v;
    parameter[i] -= f.rate * (kNesterov ? g + f.momentum * v : v);
  }
}

template <class Scalar>
struct AdamFactors {
  Scalar rate;  // lr / (1 - beta1^t)
  Scalar beta1, beta2, epsilon;
  Scalar correction;  // 1 / sqrt(1 - beta2^t)
  Scalar decay;       // added to the gradient, times the parameter
  Scalar shrink;      // factor on the parameter
  Scalar scale;       // factor on the gradient
};

template <class Scalar>
void adam(Scalar* __restrict parameter, const Scalar* __restrict gradient, Scalar* __restrict first,
          Scalar* __restrict second, std::size_t count, AdamFactors<Scalar> f) {
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar g = gradient[i] * f.scale + f.decay * parameter[i];
    const Scalar m1 = f.beta1 * first[i] + (1 - f.beta1) * g;
    const Scalar m2 = f.beta2 * second[i] + (1 - f.beta2) * g * g;
    first[i] = m1;
    second[i] = m2;
    parameter[i] = f.shrink * parameter[i] - f.rate * m1 / (std::sqrt(m2) * f.correction + f.epsilon);
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
  }
  throw InternalError("an optimizer without a name");
}

OptimizerKind parse_optimizer(std::string_view text) {
  for (const OptimizerKind kind : kKinds) {
    if (text == name(kind)) return kind;
  }
  throw InvalidArgument(fmt::format("there is no optimizer '{}'; choose sgd, adam or adamw", text));
}

template <class Scalar>
Optimizer<Scalar>::Optimizer(const OptimizerOptions& options, std::vector<NamedSpan> layout,
                             std::size_t parameter_count)
    : options_(options), layout_(std::move(layout)) {
  check(options_);
  if (options_.kind == OptimizerKind::kSgd) {
    states_.push_back({"momentum", std::vector<Scalar>(parameter_count)});
  } else {
    states_.push_back({"first_moment", std::vector<Scalar>(parameter_count)});
    states_.push_back({"second_moment", std::vector<Scalar>(parameter_count)});
  }
}

template <class Scalar>
void Optimizer<Scalar>::update(std::span<Scalar> parameters, std::span<const Scalar> gradients, double learning_rate,
                               double gradient_scale, std::int64_t training_step) {
  const auto number = [](double value) { return static_cast<Scalar>(value); };
  const double t = static_cast<double>(training_step) + 1;
  for (const NamedSpan& span : layout_) {
    Scalar* parameter = parameters.data() + span.first;
    const Scalar* gradient = gradients.data() + span.first;
    const double decay = span.decays ? options_.weight_decay : 0;
    if (options_.kind == OptimizerKind::kSgd) {
      const SgdFactors<Scalar> f{number(learning_rate), number(options_.momentum), number(decay),
                                 number(gradient_scale)};
      Scalar* velocity = states_[0].values.data() + span.first;
      options_.nesterov ? sgd<Scalar, true>(parameter, gradient, velocity, span.count, f)
                        : sgd<Scalar, false>(parameter, gradient, velocity, span.count, f);
      continue;
    }
    const bool apart = options_.kind == OptimizerKind::kAdamW;
    const AdamFactors<Scalar> f{.rate = number(learning_rate / (1 - std::pow(options_.beta1, t))),
                                .beta1 = number(options_.beta1),
                                .beta2 = number(options_.beta2),
                                .epsilon = number(options_.epsilon),
                                .correction = number(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
                                .decay = number(apart ? 0 : decay),
                                .shrink = number(apart ? 1 - learning_rate * decay : 1),
                                .scale = number(gradient_scale)};
    adam(parameter, gradient, states_[0].values.data() + span.first, states_[1].values.data() + span.first, span.count,
         f);
  }
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
