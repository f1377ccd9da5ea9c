// SPDX-License-Identifier: Apache-2.0
// Averages whose sum may leave the type of the elements though the average fits: see decision 0035.
#pragma once

#include <cstddef>
#include <span>

#include "farandole/core/dtype.h"

namespace farandole {

/// The type in which an average of elements of `dtype` adds: i32 for integers of 8 and 16 bits, i64 for those of 32
/// bits, else `dtype`. Sums of integers of 64 bits wrap. i32 holds the sums of 32768 ranks.
inline DType sum_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kU16:
    case DType::kI16:
      return DType::kI32;
    case DType::kI32:
    case DType::kU32:
      return DType::kI64;
    default:
      return dtype;
  }
}

/// A factor that a user gave, as elements of `dtype` are multiplied by it: rounded to float for f16, bf16 and f32, as
/// Horovod does; unchanged for f64 and integers. scale() multiplies f32 in double: with a factor of 24 bits the product
/// is exact, and rounded once, which is the product in float.
double user_factor(double factor, DType dtype);

/// What the sum of `ranks` contributions is multiplied by for an average: exactly one over their number where the user
/// gave no factor, else the user's factor over their number, as a user's factor.
double average_factor(double user_postscale, DType dtype, int ranks);

/// reduce_many() and scale() in one pass. An average is added in `sum_type`, that of f16 in f32, and is rounded once.
/// @param factor  of the result
void reduce_and_scale(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op,
                      double factor);

/// reduce_and_scale() of an average of integers that have a wider `sum_type`. `out` may be one of the inputs.
void average_integers(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, double factor);

/// out[i] = in[i] * factor, as scale() gives it in `dtype`, stored as `sum_type(dtype)`. Integers with a wider one.
void widen_to_sum(void* out, const void* in, std::size_t count, DType dtype, double factor);

/// out[i] = in[i] * factor, from elements of `sum_type(dtype)`, as scale() does, bounded by the range of `dtype`.
void narrow_from_sum(void* out, const void* in, std::size_t count, DType dtype, double factor);

}  // namespace farandole
