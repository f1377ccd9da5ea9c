// SPDX-License-Identifier: Apache-2.0
// Test values: small integers, so that every reduction is exact in every type and can be compared bit by bit; for
// bitwise operations random bits, which no other operation combines to the same result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/core/buffer.h"

namespace farandole::test {

/// Element `index` of rank `rank`'s input: 0 … 4; for products 1 or 2, with few 2s; for bool 0 or 1; for
/// bitwise operations random bits in the whole width of the type (of 64 bits the upper 48, which a double holds).
double value(int rank, std::size_t index, DType dtype, ReduceOp op);
/// A buffer of rank `rank`'s values.
Buffer values(int rank, std::size_t first, std::size_t count, DType dtype, ReduceOp op);
/// The reduction of element `index` over all ranks, in double.
double reduced(int size, std::size_t index, DType dtype, ReduceOp op);

double load(ConstBufferView view, std::size_t index);
void store(BufferView view, std::size_t index, double number);

/// Empty if element i of `view` is expected(i) for all i; else a description of the first difference.
template <class Expected>
std::string first_difference(ConstBufferView view, const Expected& expected) {
  for (std::size_t i = 0; i < view.count; ++i) {
    const double came = load(view, i);
    const double wanted = expected(i);
    if (came != wanted) {
      return "element " + std::to_string(i) + " of " + std::to_string(view.count) + " is " + std::to_string(came) +
             ", expected " + std::to_string(wanted);
    }
  }
  return {};
}

}  // namespace farandole::test
