// SPDX-License-Identifier: Apache-2.0
// The built-in update rules.
#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "farandole/core/error.h"
#include "farandole/trainer/optimizer.h"

namespace farandole::trainer {
namespace {

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

template <class Scalar>
class Sgd : public UpdateRule<Scalar> {
 public:
  explicit Sgd(const OptimizerOptions& options) : momentum_(options.momentum), nesterov_(options.nesterov) {}
  std::string name() const override { return "sgd"; }
  std::vector<std::string> states() const override { return {"momentum"}; }
  void update(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
              const UpdateFacts& facts) override {
    const auto number = [](double value) { return static_cast<Scalar>(value); };
    const SgdFactors<Scalar> f{number(facts.learning_rate), number(momentum_), number(facts.weight_decay),
                               number(facts.scale())};
    Scalar *value = values.host().data(), *velocity = states[0].host().data();
    const Scalar* gradient = gradients.host().data();
    nesterov_ ? sgd<Scalar, true>(value, gradient, velocity, values.size(), f)
              : sgd<Scalar, false>(value, gradient, velocity, values.size(), f);
  }

 private:
  const double momentum_;
  const bool nesterov_;
};

template <class Scalar>
class Adam : public UpdateRule<Scalar> {
 public:
  explicit Adam(const OptimizerOptions& options)
      : beta1_(options.beta1), beta2_(options.beta2), epsilon_(options.epsilon) {}
  std::string name() const override { return "adam"; }
  std::vector<std::string> states() const override { return {"first_moment", "second_moment"}; }
  void update(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
              const UpdateFacts& facts) override {
    step(values, gradients, states, facts, {.decay = facts.weight_decay, .shrink = 1});
  }

 protected:
  struct Decay {
    double decay;   // added to the gradient, times the parameter
    double shrink;  // factor on the parameter
  };
  void step(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
            const UpdateFacts& facts, Decay decay) const {
    const auto number = [](double value) { return static_cast<Scalar>(value); };
    const double t = static_cast<double>(facts.training_step) + 1;
    const AdamFactors<Scalar> f{.rate = number(facts.learning_rate / (1 - std::pow(beta1_, t))),
                                .beta1 = number(beta1_),
                                .beta2 = number(beta2_),
                                .epsilon = number(epsilon_),
                                .correction = number(1 / std::sqrt(1 - std::pow(beta2_, t))),
                                .decay = number(decay.decay),
                                .shrink = number(decay.shrink),
                                .scale = number(facts.scale())};
    adam(values.host().data(), gradients.host().data(), states[0].host().data(), states[1].host().data(), values.size(),
         f);
  }

 private:
  const double beta1_, beta2_, epsilon_;
};

template <class Scalar>
class AdamW : public Adam<Scalar> {
 public:
  using Adam<Scalar>::Adam;
  std::string name() const override { return "adamw"; }
  void update(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
              const UpdateFacts& facts) override {
    this->step(values, gradients, states, facts, {.decay = 0, .shrink = 1 - facts.learning_rate * facts.weight_decay});
  }
};

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
  if (options.kind != OptimizerKind::kOwn && (options.own.f32 || options.own.f64)) {
    throw InvalidArgument(fmt::format(
        "OptimizerOptions::own has no effect with the optimizer {}; choose OptimizerKind::kOwn", name(options.kind)));
  }
}

/// The maker of own rules for a precision.
template <class Scalar>
const auto& maker(const OwnUpdateRule& own) {
  if constexpr (std::is_same_v<Scalar, float>) {
    return own.f32;
  } else {
    return own.f64;
  }
}

template <class Scalar>
std::unique_ptr<UpdateRule<Scalar>> make_own_rule(const OwnUpdateRule& own) {
  const std::string_view precision = farandole::name(dtype_of<Scalar>);
  const auto& make = maker<Scalar>(own);
  if (!make) {
    throw InvalidArgument(
        fmt::format("an optimizer of your own needs a maker of update rules for the model's precision: "
                    "OptimizerOptions::own.{} is empty",
                    precision));
  }
  auto rule = make();
  if (!rule) throw InvalidArgument(fmt::format("OptimizerOptions::own.{} has returned no update rule", precision));
  return rule;
}

}  // namespace

template <class Scalar>
std::unique_ptr<UpdateRule<Scalar>> make_update_rule(const OptimizerOptions& options) {
  check(options);
  switch (options.kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd<Scalar>>(options);
    case OptimizerKind::kAdam:
      return std::make_unique<Adam<Scalar>>(options);
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamW<Scalar>>(options);
    case OptimizerKind::kOwn:
      return make_own_rule<Scalar>(options.own);
  }
  throw InternalError("an optimizer without a rule");
}
template std::unique_ptr<UpdateRule<float>> make_update_rule(const OptimizerOptions&);
template std::unique_ptr<UpdateRule<double>> make_update_rule(const OptimizerOptions&);

}  // namespace farandole::trainer
