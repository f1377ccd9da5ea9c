// SPDX-License-Identifier: Apache-2.0
// Evaluation with the moving average of the parameters.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

/// Puts the average, rounded to the model's type, in the place of the parameters; the destructor puts the parameters
/// back.
template <class Scalar>
class ParameterSwap {
 public:
  /// @param average  f32 or f64, in host memory; empty: nothing is put
  ParameterSwap(VectorView<Scalar> parameters, BufferView average) : parameters_(parameters.host()) {
    if (average.count == 0) return;
    saved_.assign(parameters_.begin(), parameters_.end());
    average.dtype == DType::kF64 ? put<double>(average) : put<float>(average);
  }
  ~ParameterSwap() { std::copy(saved_.begin(), saved_.end(), parameters_.begin()); }
  ParameterSwap(const ParameterSwap&) = delete;
  ParameterSwap& operator=(const ParameterSwap&) = delete;

 private:
  template <class Average>
  void put(BufferView average) {
    const auto* const from = static_cast<const Average*>(average.data);
    std::transform(from, from + average.count, parameters_.begin(),
                   [](Average value) { return static_cast<Scalar>(value); });
  }

  const std::span<Scalar> parameters_;
  std::vector<Scalar> saved_;
};

}  // namespace farandole::trainer
