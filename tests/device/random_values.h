// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <random>

#include "farandole/core/buffer.h"
#include "values.h"

namespace farandole::test {

/// Any bits for integers; for floating-point types small numbers with fractions, so that the order of additions shows
/// in the result; 0 or 1 for bool.
inline Buffer random_values(unsigned seed, std::size_t count, DType dtype, ReduceOp op) {
  std::mt19937_64 random(seed);
  Buffer buffer(count, dtype);
  const BufferView view = buffer.view();
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = random();
    if (dtype == DType::kBool) {
      store(view, i, static_cast<double>(bits % 2));
    } else if (is_floating_point(dtype)) {
      const double fraction = static_cast<double>(bits % 10'000) / 7'000.0;
      store(view, i, op == ReduceOp::kProduct ? 0.5 + fraction : fraction - 0.7);
    } else {
      std::memcpy(static_cast<std::byte*>(view.data) + i * size_in_bytes(dtype), &bits, size_in_bytes(dtype));
    }
  }
  return buffer;
}

}  // namespace farandole::test
