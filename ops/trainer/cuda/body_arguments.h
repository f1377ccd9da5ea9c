// SPDX-License-Identifier: Apache-2.0
// What the bodies of kernels get: their arguments, and the share of a thread.
#pragma once

#include <cstdint>

#include "cuda/operand_arguments.h"
#include "farandole/internal/host_device.h"
#include "farandole/trainer/step_numbers.h"

namespace farandole::trainer::cuda {

using Arguments = farandole::cuda::OperandArguments;

/// The elements of a thread: first, first + stride, … below a count.
struct Share {
  std::int64_t first, stride;
};

template <class T>
FARANDOLE_HOST_DEVICE inline const T* input(const Arguments& arguments, int operand) {
  return static_cast<const T*>(arguments.operands[operand].address);
}
template <class T>
FARANDOLE_HOST_DEVICE inline T* output(const Arguments& arguments, int operand) {
  return static_cast<T*>(arguments.operands[operand].address);
}
template <class T>
FARANDOLE_HOST_DEVICE inline T number(const Arguments& arguments, int index) {
  return static_cast<T>(arguments.numbers[index]);
}

/// True if the operation has a loss scale, and that says that the training step at hand is skipped.
FARANDOLE_HOST_DEVICE inline bool is_skipped(const Arguments& a, int operand) {
  const auto* loss_scale = input<LossScale>(a, operand);
  return loss_scale != nullptr && loss_scale->is_skipped == 1;
}

/// The numbers of the training step, if the operation has them; else null.
FARANDOLE_HOST_DEVICE inline const StepNumbers* step_numbers_of(const Arguments& a, int operand) {
  return input<StepNumbers>(a, operand);
}

}  // namespace farandole::trainer::cuda
