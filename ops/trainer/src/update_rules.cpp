// SPDX-License-Identifier: Apache-2.0
// The built-in update rules.
#include <fmt/format.h>

#include <type_traits>

#include "farandole/core/error.h"
#include "farandole/trainer/optimizer.h"
#include "kernels/kernels.h"
#include "kernels/update_formulas.h"

namespace farandole::trainer {
namespace {

/// @throws InvalidArgument  the values lie elsewhere than the execution
void check_memory(const UpdateFacts& facts, MemorySpace space) {
  facts.execution.require(space, "the vector of values");
}

UpdateRate rate_of(const UpdateFacts& facts) {
  return {facts.learning_rate, facts.step_numbers, facts.rate_factor};
}

template <class Scalar>
class Sgd : public UpdateRule<Scalar> {
 public:
  explicit Sgd(const OptimizerOptions& options) : momentum_(options.momentum), nesterov_(options.nesterov) {}
  std::string name() const override { return "sgd"; }
  std::vector<std::string> states() const override { return {"momentum"}; }
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }
  void update(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
              const UpdateFacts& facts) override {
    check_memory(facts, values.space());
    kernels_of<Scalar>(facts.execution)
        .sgd({rate_of(facts), momentum_, facts.weight_decay, nesterov_, facts.gradient_scale.data()},
             static_cast<std::int64_t>(values.size()), gradients.data(), states[0].data(), values.data());
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
  DeviceForm device_form() const override { return DeviceForm::kGraphs; }
  void update(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
              const UpdateFacts& facts) override {
    step(values, gradients, states, facts, {.decay = facts.weight_decay, .own_decay = 0});
  }
  std::array<double, kRuleNumbers> step_numbers(std::int64_t update) const override {
    const AdamCorrections found = adam_corrections(beta1_, beta2_, update);
    return {found.first_bias, found.correction};
  }
  void set_step_numbers(const Execution& execution, const UpdateCount& count, double* numbers) const override {
    kernels_of<Scalar>(execution).set_adam_corrections(beta1_, beta2_, count, numbers);
  }

 protected:
  /// As in AdamFactors.
  struct Decays {
    double decay, own_decay;
  };
  void step(VectorView<Scalar> values, VectorView<const Scalar> gradients, std::span<const VectorView<Scalar>> states,
            const UpdateFacts& facts, Decays decays) const {
    const auto [first_bias, correction] = step_numbers(facts.update);
    const AdamFactors factors{.rate = rate_of(facts),
                              .beta1 = beta1_,
                              .beta2 = beta2_,
                              .epsilon = epsilon_,
                              .first_bias = first_bias,
                              .correction = correction,
                              .decay = decays.decay,
                              .own_decay = decays.own_decay,
                              .scale = facts.gradient_scale.data(),
                              .corrections = facts.rule_numbers};
    check_memory(facts, values.space());
    kernels_of<Scalar>(facts.execution)
        .adam(factors, static_cast<std::int64_t>(values.size()), gradients.data(), states[0].data(), states[1].data(),
              values.data());
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
    this->step(values, gradients, states, facts, {.decay = 0, .own_decay = facts.weight_decay});
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
