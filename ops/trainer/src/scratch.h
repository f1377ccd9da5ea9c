// SPDX-License-Identifier: Apache-2.0
// Small helpers of layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "farandole/trainer/layer.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Sets all gradients of a layer to 0, as after a batch without samples.
template <class Scalar>
void clear_gradients(const Kernels<Scalar>& kernels, const LayerMemory<Scalar>& memory) {
  for (const VectorView<Scalar>& gradient : memory.gradients) {
    kernels.clear(static_cast<std::int64_t>(gradient.size()), gradient.data());
  }
}
/// As above, in host memory.
template <class Scalar>
void clear_gradients(const LayerMemory<Scalar>& memory) {
  clear_gradients(host_kernels<Scalar>(), memory);
}

}  // namespace farandole::trainer
