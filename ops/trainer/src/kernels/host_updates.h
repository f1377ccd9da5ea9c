// SPDX-License-Identifier: Apache-2.0
// Updates of parameters in host memory. The loops are memory-bound. Their pointers do not alias, so the compiler can
// vectorise them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/kernels.h"

namespace farandole::trainer {

template <class Scalar, bool kNesterov>
void host_sgd(const SgdFactors& factors, std::int64_t count, const Scalar* __restrict gradient,
              Scalar* __restrict velocity, Scalar* __restrict parameter) {
  const auto number = [](double value) { return static_cast<Scalar>(value); };
  const Scalar rate = number(factors.rate), momentum = number(factors.momentum), decay = number(factors.decay),
               scale = number(*factors.scale);
  for (std::int64_t i = 0; i < count; ++i) {
    const Scalar g = gradient[i] * scale + decay * parameter[i];
    const Scalar v = momentum * velocity[i] + g;
    velocity[i] = v;
    parameter[i] -= rate * (kNesterov ? g + momentum * v : v);
  }
}

template <class Scalar>
void host_adam(const AdamFactors& factors, std::int64_t count, const Scalar* __restrict gradient,
               Scalar* __restrict first, Scalar* __restrict second, Scalar* __restrict parameter) {
  const auto number = [](double value) { return static_cast<Scalar>(value); };
  const Scalar rate = number(factors.rate), beta1 = number(factors.beta1), beta2 = number(factors.beta2),
               epsilon = number(factors.epsilon), correction = number(factors.correction),
               decay = number(factors.decay), shrink = number(factors.shrink), scale = number(*factors.scale);
  for (std::int64_t i = 0; i < count; ++i) {
    const Scalar g = gradient[i] * scale + decay * parameter[i];
    const Scalar m1 = beta1 * first[i] + (1 - beta1) * g;
    const Scalar m2 = beta2 * second[i] + (1 - beta2) * g * g;
    first[i] = m1;
    second[i] = m2;
    parameter[i] = shrink * parameter[i] - rate * m1 / (std::sqrt(m2) * correction + epsilon);
  }
}

}  // namespace farandole::trainer
