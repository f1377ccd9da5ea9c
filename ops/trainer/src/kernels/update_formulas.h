// SPDX-License-Identifier: Apache-2.0
// The formulas of the optimizers at one parameter, for hosts and devices.
#pragma once

#include <cmath>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

/// Stochastic gradient descent with momentum.
template <class Scalar>
struct SgdFormula {
  Scalar rate, momentum, decay, scale;

  FARANDOLE_HOST_DEVICE void update(bool nesterov, Scalar gradient, Scalar& velocity, Scalar& parameter) const {
    const Scalar g = gradient * scale + decay * parameter;
    const Scalar v = momentum * velocity + g;
    velocity = v;
    parameter -= rate * (nesterov ? g + momentum * v : v);
  }
};

/// Adam and AdamW.
template <class Scalar>
struct AdamFormula {
  Scalar rate;  ///< learning rate / (1 - beta1^t)
  Scalar beta1, beta2, epsilon;
  Scalar correction;  ///< 1 / sqrt(1 - beta2^t)
  Scalar decay;       ///< added to the gradient, times the parameter
  Scalar shrink;      ///< factor on the parameter
  Scalar scale;       ///< factor on the gradient

  FARANDOLE_HOST_DEVICE void update(Scalar gradient, Scalar& first, Scalar& second, Scalar& parameter) const {
    const Scalar g = gradient * scale + decay * parameter;
    const Scalar m1 = beta1 * first + (1 - beta1) * g;
    const Scalar m2 = beta2 * second + (1 - beta2) * g * g;
    first = m1;
    second = m2;
    parameter = shrink * parameter - rate * m1 / (std::sqrt(m2) * correction + epsilon);
  }
};

}  // namespace farandole::trainer
