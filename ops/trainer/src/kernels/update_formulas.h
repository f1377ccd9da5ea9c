// SPDX-License-Identifier: Apache-2.0
// The formulas of the optimizers at one parameter, for hosts and devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "farandole/internal/host_device.h"
#include "farandole/trainer/step_numbers.h"

namespace farandole::trainer {

// Loss scales stay in this range, so that gradients in f16 neither all overflow nor lose digits to the scale.
inline constexpr double kMinLossScale = 1, kMaxLossScale = 16777216;

/// The factor on every gradient: see Kernels::set_gradient_scale. @param loss_scale  may be null
FARANDOLE_HOST_DEVICE inline double gradient_scale_of(double factor, double limit, const double* squares,
                                                      LossScale* loss_scale) {
  double scale = factor;
  if (loss_scale != nullptr) {
    loss_scale->is_skipped = std::isfinite(*squares) ? 0 : 1;
    if (loss_scale->is_skipped == 1) return std::nan("");
    scale /= loss_scale->scale;
  }
  if (limit > 0) {
    const double norm = std::fabs(scale) * std::sqrt(*squares);
    if (norm > limit) scale *= limit / norm;
  }
  return scale;
}

/// Counts a training step: see LossScaleOptions. @param growth_steps  0: the scale stays
FARANDOLE_HOST_DEVICE inline void move_loss_scale(std::int64_t growth_steps, LossScale& loss_scale) {
  const bool is_skipped = loss_scale.is_skipped == 1;
  loss_scale.skipped_steps += is_skipped ? 1 : 0;
  loss_scale.good_steps = is_skipped ? 0 : loss_scale.good_steps + 1;
  const bool grows = growth_steps > 0 && loss_scale.good_steps == growth_steps;
  if (grows) loss_scale.good_steps = 0;
  const double moved = loss_scale.scale * (grows ? 2 : is_skipped && growth_steps > 0 ? 0.5 : 1);
  if (moved >= kMinLossScale && moved <= kMaxLossScale) loss_scale.scale = moved;
}

/// Factors that correct Adam's moments, which begin as 0.
struct AdamCorrections {
  double first_bias;  ///< 1 - beta1^t
  double correction;  ///< 1 / sqrt(1 - beta2^t)
};
/// @param update  0-based, t - 1
FARANDOLE_HOST_DEVICE inline AdamCorrections adam_corrections(double beta1, double beta2, std::int64_t update) {
  const double t = static_cast<double>(update) + 1;
  return {1 - std::pow(beta1, t), 1 / std::sqrt(1 - std::pow(beta2, t))};
}

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
