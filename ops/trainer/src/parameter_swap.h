// SPDX-License-Identifier: Apache-2.0
// Evaluation with the moving average of the parameters.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

/// Copies the parameters' average, f32 or f64 in host memory, to values of the model's type.
template <class Scalar>
void copy_average(BufferView average, std::span<Scalar> to) {
  const auto copy = [&](const auto* values) {
    std::transform(values, values + average.count, to.begin(), [](auto value) { return static_cast<Scalar>(value); });
  };
  average.dtype == DType::kF64 ? copy(static_cast<const double*>(average.data))
                               : copy(static_cast<const float*>(average.data));
}

/// Puts the average, rounded to the model's type, in the place of the parameters; the destructor puts the parameters
/// back.
template <class Scalar>
class ParameterSwap {
 public:
  /// @param average  as in copy_average; empty: nothing is put
  ParameterSwap(VectorView<Scalar> parameters, BufferView average) : parameters_(parameters.host()) {
    if (average.count == 0) return;
    saved_.assign(parameters_.begin(), parameters_.end());
    copy_average(average, parameters_);
  }
  ~ParameterSwap() { std::copy(saved_.begin(), saved_.end(), parameters_.begin()); }
  ParameterSwap(const ParameterSwap&) = delete;
  ParameterSwap& operator=(const ParameterSwap&) = delete;

 private:
  const std::span<Scalar> parameters_;
  std::vector<Scalar> saved_;
};

}  // namespace farandole::trainer
