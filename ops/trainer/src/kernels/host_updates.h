// SPDX-License-Identifier: Apache-2.0
// Updates of parameters in host memory. The loops are memory-bound. Their pointers do not alias, so the compiler can
// vectorise them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/update_formulas.h"

namespace farandole::trainer {

template <class Scalar, bool kNesterov>
void host_sgd(const SgdFactors& factors, std::int64_t count, const Scalar* __restrict gradient,
              Scalar* __restrict velocity, Scalar* __restrict parameter) {
  if (std::isnan(*factors.scale)) return;
  const auto number = [](double value) { return static_cast<Scalar>(value); };
  const SgdFormula<Scalar> formula{number(factors.rate.rate), number(factors.momentum), number(factors.decay),
                                   number(*factors.scale)};
  for (std::int64_t i = 0; i < count; ++i) formula.update(kNesterov, gradient[i], velocity[i], parameter[i]);
}

template <class Scalar>
void host_adam(const AdamFactors& factors, std::int64_t count, const Scalar* __restrict gradient,
               Scalar* __restrict first, Scalar* __restrict second, Scalar* __restrict parameter) {
  if (std::isnan(*factors.scale)) return;
  const auto number = [](double value) { return static_cast<Scalar>(value); };
  const double rate = factors.rate.rate;
  const double* const own = factors.corrections;
  const double first_bias = own == nullptr ? factors.first_bias : own[0];
  const double correction = own == nullptr ? factors.correction : own[1];
  const AdamFormula<Scalar> formula{.rate = number(rate / first_bias),
                                    .beta1 = number(factors.beta1),
                                    .beta2 = number(factors.beta2),
                                    .epsilon = number(factors.epsilon),
                                    .correction = number(correction),
                                    .decay = number(factors.decay),
                                    .shrink = number(1 - rate * factors.own_decay),
                                    .scale = number(*factors.scale)};
  for (std::int64_t i = 0; i < count; ++i) formula.update(gradient[i], first[i], second[i], parameter[i]);
}

}  // namespace farandole::trainer
