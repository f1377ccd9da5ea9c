// SPDX-License-Identifier: Apache-2.0
// Bodies of optimizers.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/update_formulas.h"

namespace farandole::trainer::cuda {

/// Operands: scale, sum of squares or null. Numbers: factor, limit of the norm.
template <class T>
struct SetGradientScale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first != 0) return;
    double scale = a.numbers[0];
    if (a.numbers[1] > 0) {
      const double norm = std::fabs(scale) * std::sqrt(*input<double>(a, 1));
      if (norm > a.numbers[1]) scale *= a.numbers[1] / norm;
    }
    *output<double>(a, 0) = scale;
  }
};

/// Operands: parameters, velocities, gradients, scale. Sizes: count, 1 for Nesterov's form. Numbers: the rate, momentum
/// and decay of SgdFactors.
template <class T>
struct Sgd {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const SgdFormula<T> formula{number<T>(a, 0), number<T>(a, 1), number<T>(a, 2),
                                static_cast<T>(*input<double>(a, 3))};
    const bool nesterov = a.sizes[1] == 1;
    const T* gradient = input<T>(a, 2);
    T *parameter = output<T>(a, 0), *velocity = output<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(nesterov, gradient[i], velocity[i], parameter[i]);
  }
};

/// Operands: parameters, first and second moments, gradients, scale. Sizes: count. Numbers: the members of AdamFactors.
template <class T>
struct Adam {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const AdamFormula<T> formula{
        number<T>(a, 0), number<T>(a, 1), number<T>(a, 2), number<T>(a, 3),
        number<T>(a, 4), number<T>(a, 5), number<T>(a, 6), static_cast<T>(*input<double>(a, 4))};
    const T* gradient = input<T>(a, 3);
    T *parameter = output<T>(a, 0), *first = output<T>(a, 1), *second = output<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(gradient[i], first[i], second[i], parameter[i]);
  }
};

}  // namespace farandole::trainer::cuda
