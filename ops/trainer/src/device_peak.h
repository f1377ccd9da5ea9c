// SPDX-License-Identifier: Apache-2.0
// The speed of a device, against which a training is measured.
#pragma once

#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// Measures how many floating-point operations per second a large matrix product of this type reaches on the device of
/// the execution. The product has 4096 rows and columns; fewer if it would take longer than 50 ms, as on slow devices
/// in f64, or if there is no memory for it. Waits for the device. @throws DeviceError
template <class Scalar>
FARANDOLE_API double measured_peak(const Execution& execution);

}  // namespace farandole::trainer
