// SPDX-License-Identifier: Apache-2.0
// Activations in host memory. The compiler vectorises those of comparisons and products (activation.h); Eigen
// vectorises those that take exp, tanh or erf, in blocks (blocks.h). An activation of blocks is a struct with
// `value(x)` and `gradient(x, y, dy)`, where y = value(x).
#pragma once

#include <cstdint>
#include <numbers>

#include "blocks.h"
#include "farandole/core/error.h"
#include "kernels/activation.h"
#include "vectorized.h"

namespace farandole::trainer {

template <class Scalar>
struct Gelu {
  using Values = Block<Scalar>;
  Values value(const Values& x) const { return x * probability(x); }
  Values gradient(const Values& x, const Values&, const Values& dy) const {
    constexpr auto kPeak = static_cast<Scalar>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);  // 1/sqrt(2 pi)
    const Values density = kPeak * (Scalar(-0.5) * x * x).exp();
    return dy * (probability(x) + x * density);
  }
  /// Distribution function of the standard normal distribution.
  static Values probability(const Values& x) {
    constexpr auto kInverseRoot = static_cast<Scalar>(1 / std::numbers::sqrt2);
    return Scalar(0.5) * (Scalar{1} + (x * kInverseRoot).erf());
  }
};

template <class Scalar>
Block<Scalar> logistic(const Block<Scalar>& x) {
  return (Scalar{1} + (-x).exp()).inverse();
}

template <class Scalar>
struct Silu {
  using Values = Block<Scalar>;
  Values value(const Values& x) const { return x * logistic(x); }
  Values gradient(const Values& x, const Values&, const Values& dy) const {
    const Values gate = logistic(x);
    return dy * gate * (Scalar{1} + x * (Scalar{1} - gate));
  }
};

template <class Scalar>
struct Sigmoid {
  using Values = Block<Scalar>;
  Values value(const Values& x) const { return logistic(x); }
  Values gradient(const Values&, const Values& y, const Values& dy) const { return dy * y * (Scalar{1} - y); }
};

template <class Scalar>
struct HyperbolicTangent {
  using Values = Block<Scalar>;
  Values value(const Values& x) const { return x.tanh(); }
  Values gradient(const Values&, const Values& y, const Values& dy) const { return dy * (Scalar{1} - y * y); }
};

/// The vectors of an activation's pass; those that the pass does not need are null.
template <class Scalar>
struct ActivationVectors {
  std::int64_t count = 0;
  const Scalar *x = nullptr, *y = nullptr, *dy = nullptr;
  Scalar* result = nullptr;
};

/// Computes values, or gradients if there is a `dy`, by an activation of scalars.
template <class Scalar, class Function>
void by_element(const Function& activation, const ActivationVectors<Scalar>& vectors) {
  const auto [count, x, y, dy, result] = vectors;
  const Function function = activation;
  const Scalar *input = x, *output = y, *gradient = dy;
  Scalar* to = result;
  const std::int64_t size = count;
  if (gradient == nullptr) {
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict from = input;
      Scalar* __restrict values = to;
      for (std::int64_t i = 0; i < size; ++i) values[i] = function.value(from[i]);
    });
  } else {
    vectorized([=]() FARANDOLE_INLINED {
      const Scalar* __restrict from = input, * __restrict results = output, * __restrict slopes = gradient;
      Scalar* __restrict values = to;
      for (std::int64_t i = 0; i < size; ++i) values[i] = function.gradient(from[i], results[i], slopes[i]);
    });
  }
}

/// As by_element, by an activation of blocks.
template <class Scalar, class Function>
void by_block(const Function& activation, const ActivationVectors<Scalar>& vectors) {
  using Values = Block<Scalar>;
  if (vectors.dy == nullptr) {
    transform_blocks(
        vectors.count, vectors.result, [&](const Values& x) { return activation.value(x); }, vectors.x);
  } else {
    transform_blocks(
        vectors.count, vectors.result,
        [&](const Values& x, const Values& y, const Values& dy) { return activation.gradient(x, y, dy); }, vectors.x,
        vectors.y, vectors.dy);
  }
}

template <class Scalar>
void host_activate(const Activation& activation, const ActivationVectors<Scalar>& vectors) {
  switch (activation.kind) {
    case ActivationKind::kRelu:
      return by_element(Relu<Scalar>{}, vectors);
    case ActivationKind::kLeakyRelu:
      return by_element(LeakyRelu<Scalar>{static_cast<Scalar>(activation.slope)}, vectors);
    case ActivationKind::kGelu:
      return by_block(Gelu<Scalar>{}, vectors);
    case ActivationKind::kSilu:
      return by_block(Silu<Scalar>{}, vectors);
    case ActivationKind::kSigmoid:
      return by_block(Sigmoid<Scalar>{}, vectors);
    case ActivationKind::kHyperbolicTangent:
      return by_block(HyperbolicTangent<Scalar>{}, vectors);
  }
  throw InternalError("an activation without a function");
}

}  // namespace farandole::trainer
