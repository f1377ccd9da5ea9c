// SPDX-License-Identifier: Apache-2.0
// Numbers of 16-bit types in tests.
#pragma once

#include <vector>

#include "farandole/core/dtype.h"
#include "farandole/internal/float16.h"

namespace farandole::trainer::test {

inline constexpr DType kHalves[] = {DType::kBF16, DType::kF16};

/// Largest relative error of a rounding to the type.
inline double unit(DType half) {
  return half == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

inline std::vector<float> rounded(std::vector<float> values, DType half) {
  for (float& value : values) {
    value = half == DType::kBF16 ? widen(narrow_to_bfloat16(value)) : widen(narrow_to_half(value));
  }
  return values;
}

}  // namespace farandole::trainer::test
