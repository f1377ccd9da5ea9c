// SPDX-License-Identifier: Apache-2.0
// Evaluation with the moving average of the parameters.
#pragma once

#include <algorithm>
#include <exception>
#include <span>

#include "farandole/core/buffer.h"
#include "kernels/kernels.h"

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
  /// @param execution  where both lie; outlives this object   @param average  as in copy_average, on a device of the
  /// model's type; empty: nothing is put
  ParameterSwap(const Execution& execution, VectorView<Scalar> parameters, BufferView average)
      : execution_(execution), parameters_(parameters) {
    if (average.count == 0) return;
    saved_ = allocate(execution.memory(), parameters.size(), dtype_of<Scalar>);
    copy(parameters.data(), static_cast<Scalar*>(saved_.view().data));
    if (average.dtype == dtype_of<Scalar>) {
      copy(static_cast<const Scalar*>(average.data), parameters.data());
    } else {
      copy_average(average, parameters.host());
    }
  }
  ~ParameterSwap() {
    try {
      if (saved_.count() > 0) copy(static_cast<const Scalar*>(saved_.view().data), parameters_.data());
    } catch (const std::exception&) {
      // The device has failed, and so has what was evaluated.
    }
  }
  ParameterSwap(const ParameterSwap&) = delete;
  ParameterSwap& operator=(const ParameterSwap&) = delete;

 private:
  void copy(const Scalar* from, Scalar* to) const {
    kernels_of<Scalar>(execution_).copy(static_cast<std::int64_t>(parameters_.size()), from, to);
  }

  const Execution& execution_;
  const VectorView<Scalar> parameters_;
  Buffer saved_;
};

}  // namespace farandole::trainer
