// SPDX-License-Identifier: Apache-2.0
// Losses of an output by its target, for host and device. Computed in double.
#pragma once

#include <cmath>
#include <cstdint>

#include "farandole/internal/host_device.h"

namespace farandole::trainer {

enum class TargetLossKind : std::uint8_t { kSquaredError, kAbsoluteError, kHuber, kBinaryCrossEntropy };

struct TargetRule {
  TargetLossKind kind = TargetLossKind::kSquaredError;
  double delta = 0;  ///< kHuber: where the loss becomes linear
};

/// Loss of an output and its derivative by the output.
struct LossPoint {
  double loss = 0, slope = 0;
};

struct SquaredError {
  FARANDOLE_HOST_DEVICE LossPoint operator()(double output, double target) const {
    const double difference = output - target;
    return {difference * difference, 2 * difference};
  }
};

struct AbsoluteError {
  FARANDOLE_HOST_DEVICE LossPoint operator()(double output, double target) const {
    const double difference = output - target;
    // A slope of NaN for a NaN, so that an update cannot hide it.
    return {std::fabs(difference), difference == 0 ? 0.0 : difference / std::fabs(difference)};
  }
};

struct Huber {
  double delta;

  FARANDOLE_HOST_DEVICE LossPoint operator()(double output, double target) const {
    const double difference = output - target, distance = std::fabs(difference);
    if (distance <= delta) return {difference * difference / 2, difference};
    return {delta * (distance - delta / 2), delta * (difference / distance)};
  }
};

/// By the logit z: max(z, 0) - t z + log(1 + exp(-|z|)), which never overflows.
struct BinaryCrossEntropy {
  FARANDOLE_HOST_DEVICE LossPoint operator()(double output, double target) const {
    const double small = std::exp(-std::fabs(output));
    const double probability = output >= 0 ? 1 / (1 + small) : small / (1 + small);
    return {(output < 0 ? 0.0 : output) - target * output + std::log1p(small), probability - target};
  }
};

/// Calls use(the rule's formula).
template <class Use>
FARANDOLE_HOST_DEVICE inline void use_formula(const TargetRule& rule, const Use& use) {
  switch (rule.kind) {
    case TargetLossKind::kSquaredError:
      return use(SquaredError{});
    case TargetLossKind::kAbsoluteError:
      return use(AbsoluteError{});
    case TargetLossKind::kHuber:
      return use(Huber{rule.delta});
    case TargetLossKind::kBinaryCrossEntropy:
      return use(BinaryCrossEntropy{});
  }
}

}  // namespace farandole::trainer
