// SPDX-License-Identifier: Apache-2.0
// The speed of the processor, against which the layers of a training are measured.
#pragma once

#include "farandole/collectives/communicator.h"
#include "farandole/internal/deadline.h"
#include "matrix_product.h"

namespace farandole::trainer {

/// What is measured, and by which clock. Tests replace both.
template <class Scalar>
struct PeakMeasurement {
  /// Computes result = factor * factor: the product of the layers.
  void (*square)(const Factor<Scalar>& factor, Scalar* result) = [](const Factor<Scalar>& factor, Scalar* result) {
    multiply(factor, factor, false, result);
  };
  Clock::time_point (*now)() = Clock::now;
};

/// Measures how many floating-point operations per second a large matrix product of this type reaches on this rank, by
/// the product and the kernel threads of the layers, while all other ranks compute the same. The product has up to 4096
/// rows and columns; fewer if it would take longer than 100 ms on the slowest rank. Collective; blocks.
template <class Scalar>
double measured_host_peak(Communicator& communicator, const PeakMeasurement<Scalar>& measurement = {});

}  // namespace farandole::trainer
