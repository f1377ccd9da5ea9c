// SPDX-License-Identifier: Apache-2.0
// Evaluation with the moving average of the parameters.
#pragma once

#include <algorithm>
#include <span>

namespace farandole::trainer {

/// Exchanges the values of the parameters with their average; the destructor exchanges them back.
template <class Scalar>
class ParameterSwap {
 public:
  /// @param average  empty: exchange nothing
  ParameterSwap(std::span<Scalar> parameters, std::span<Scalar> average) : parameters_(parameters), average_(average) {
    exchange();
  }
  ~ParameterSwap() { exchange(); }
  ParameterSwap(const ParameterSwap&) = delete;
  ParameterSwap& operator=(const ParameterSwap&) = delete;

 private:
  void exchange() { std::swap_ranges(average_.begin(), average_.end(), parameters_.begin()); }
  const std::span<Scalar> parameters_, average_;
};

}  // namespace farandole::trainer
