// SPDX-License-Identifier: Apache-2.0
// The activations: functions of single elements. Those that need no more than comparisons and products are defined here
// for host and device; host_activations.h computes the others with Eigen's vector functions.
#pragma once

#include <cmath>
#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

enum class ActivationKind : std::uint8_t { kRelu, kLeakyRelu, kGelu, kSilu, kSigmoid, kHyperbolicTangent };

struct Activation {
  ActivationKind kind = ActivationKind::kRelu;
  double slope = 0;  ///< kLeakyRelu: factor below 0
};

template <class Scalar>
struct Relu {
  FARANDOLE_HOST_DEVICE Scalar value(Scalar x) const { return Scalar{0} > x ? Scalar{0} : x; }  // NaN stays NaN
  FARANDOLE_HOST_DEVICE Scalar gradient(Scalar, Scalar y, Scalar dy) const { return y > Scalar{0} ? dy : Scalar{0}; }
};

template <class Scalar>
struct LeakyRelu {
  Scalar slope;
  FARANDOLE_HOST_DEVICE Scalar value(Scalar x) const { return x > Scalar{0} ? x : slope * x; }
  FARANDOLE_HOST_DEVICE Scalar gradient(Scalar x, Scalar, Scalar dy) const { return x > Scalar{0} ? dy : slope * dy; }
};

}  // namespace farandole::trainer
