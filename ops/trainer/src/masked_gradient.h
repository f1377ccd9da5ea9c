// SPDX-License-Identifier: Apache-2.0
// The gradient behind a ReLU, for convolutions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/trainer/execution.h"
#include "kernels/activation.h"
#include "vectorized.h"

namespace farandole::trainer {

/// Returns `gradient` where the ReLU's output is above 0, and 0 elsewhere, in memory of the scope.
inline const float* masked_gradient(Workspace::Scope& scope, std::int64_t count, const float* output,
                                    const float* gradient) {
  float* const masked = scope.take<float>(static_cast<std::size_t>(count)).host().data();
  vectorized([=]() FARANDOLE_INLINED {
    const float* __restrict y = output, * __restrict dy = gradient;
    float* __restrict dx = masked;
    for (std::int64_t k = 0; k < count; ++k) dx[k] = Relu<float>{}.gradient(0, y[k], dy[k]);
  });
  return masked;
}

}  // namespace farandole::trainer
