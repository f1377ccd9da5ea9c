// SPDX-License-Identifier: Apache-2.0
// Bodies of optimizers.
#pragma once

#include <cmath>
#include <cstdint>

#include "body_arguments.h"
#include "kernels/update_formulas.h"

namespace farandole::trainer::cuda {

/// Operands: scale, sum of squares or null, LossScale or null. Numbers: factor, limit of the norm.
template <class T>
struct SetGradientScale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first != 0) return;
    *output<double>(a, 0) = gradient_scale_of(a.numbers[0], a.numbers[1], input<double>(a, 1), output<LossScale>(a, 2));
  }
};

/// Operands: LossScale. Sizes: good training steps after which it is doubled; 0: it stays.
template <class T>
struct MoveLossScale {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first == 0) move_loss_scale(a.sizes[0], *output<LossScale>(a, 0));
  }
};

/// The learning rate of an update: numbers[0], or with StepNumbers numbers[0] times theirs.
FARANDOLE_HOST_DEVICE inline double rate_of(const Arguments& a, const StepNumbers* step) {
  return step == nullptr ? a.numbers[0] : step->learning_rate * a.numbers[0];
}

/// Operands: parameters, velocities, gradients, scale, StepNumbers or null. Sizes: count, 1 for Nesterov's form.
/// Numbers: the rate, see rate_of, momentum and decay of SgdFactors.
template <class T>
struct Sgd {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const double rate = rate_of(a, step_numbers_of(a, 4)), scale = *input<double>(a, 3);
    if (scale != scale) return;  // NaN: the training step is skipped
    const SgdFormula<T> formula{static_cast<T>(rate), number<T>(a, 1), number<T>(a, 2), static_cast<T>(scale)};
    const bool nesterov = a.sizes[1] == 1;
    const T* gradient = input<T>(a, 2);
    T *parameter = output<T>(a, 0), *velocity = output<T>(a, 1);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(nesterov, gradient[i], velocity[i], parameter[i]);
  }
};

/// Operands: corrections, LossScale, StepNumbers or null. Sizes: the training step, unless StepNumbers has it. Numbers:
/// beta1, beta2.
template <class T>
struct SetAdamCorrections {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    if (share.first != 0) return;
    const StepNumbers* const step = step_numbers_of(a, 2);
    const std::int64_t training_step = step == nullptr ? a.sizes[0] : step->training_step;
    const AdamCorrections found =
        adam_corrections(a.numbers[0], a.numbers[1], training_step - input<LossScale>(a, 1)->skipped_steps);
    output<double>(a, 0)[0] = found.first_bias;
    output<double>(a, 0)[1] = found.correction;
  }
};

/// Operands: parameters, first and second moments, gradients, scale, StepNumbers or null, corrections or null. Sizes:
/// count. Numbers: the rate, see rate_of, and the other members of AdamFactors.
template <class T>
struct Adam {
  FARANDOLE_HOST_DEVICE static void run(const Arguments& a, Share share) {
    const StepNumbers* const step = step_numbers_of(a, 5);
    const double scale = *input<double>(a, 4);
    if (scale != scale) return;  // NaN: the training step is skipped
    const double* const own = input<double>(a, 6);
    const double* const corrections = own != nullptr ? own : step != nullptr ? step->of_rule : a.numbers + 4;
    const double rate = rate_of(a, step), first_bias = corrections[0], correction = corrections[1];
    const AdamFormula<T> formula{.rate = static_cast<T>(rate / first_bias),
                                 .beta1 = number<T>(a, 1),
                                 .beta2 = number<T>(a, 2),
                                 .epsilon = number<T>(a, 3),
                                 .correction = static_cast<T>(correction),
                                 .decay = number<T>(a, 6),
                                 .shrink = static_cast<T>(1 - rate * a.numbers[7]),
                                 .scale = static_cast<T>(scale)};
    const T* gradient = input<T>(a, 3);
    T *parameter = output<T>(a, 0), *first = output<T>(a, 1), *second = output<T>(a, 2);
    for (std::int64_t i = share.first; i < a.sizes[0]; i += share.stride)
      formula.update(gradient[i], first[i], second[i], parameter[i]);
  }
};

}  // namespace farandole::trainer::cuda
