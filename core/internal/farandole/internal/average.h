// SPDX-License-Identifier: Apache-2.0
// Averages of integers whose sum may exceed the element type although the average fits: see decision 0035.
#pragma once

#include <cstddef>
#include <span>

#include "farandole/core/dtype.h"
#include "farandole/core/reduce.h"

namespace farandole {

/// Type in which elements of `dtype` are added for an average: i32 for 8- and 16-bit integers, i64 for 32-bit integers,
/// else `dtype`. i32 holds the sum of 32768 ranks. Sums of 64-bit integers wrap.
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

/// Converts a user's factor to the factor that multiplies elements of `dtype`: rounded to float for f16, bf16 and f32,
/// as in Horovod; unchanged for f64 and integers. scale() multiplies f32 in double. With a factor of 24 bits that
/// product is exact and is rounded once, so it equals the product in float.
double user_factor(double factor, DType dtype);

/// Factor that turns the sum of `ranks` contributions into the average: exactly 1 / `ranks` if the user gave no factor
/// (`user_postscale` is 1), else the user's factor / `ranks`, rounded by user_factor() before and after the division.
double average_factor(double user_postscale, DType dtype, int ranks);

/// reduce_many() and scale(), with the same bits. One pass over memory for 2 and 4 inputs; f16, and integers with a
/// factor, take more. An average is added in `sum_type` (f16 in f32) and rounded once.
/// @param also  if not null, a second place for the result; it may equal an input. Storing the result while it is in
/// registers is up to twice as fast as copying it later   @param factor  multiplies the result
void reduce_and_scale(void* out, void* also, std::span<const void* const> inputs, std::size_t count, DType dtype,
                      ReduceOp op, double factor);

/// Overload that reduces with a given instruction set, which the processor must support. For tests.
void reduce_and_scale(void* out, void* also, std::span<const void* const> inputs, std::size_t count, DType dtype,
                      ReduceOp op, double factor, Isa isa);

/// reduce_and_scale() for averages of integers whose `sum_type` is wider than `dtype`. `out` may equal an input.
void average_integers(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, double factor);

/// out[i] = in[i] * factor as scale() computes it in `dtype`, stored as `sum_type(dtype)`. For integers whose
/// `sum_type` is wider than `dtype`.
void widen_to_sum(void* out, const void* in, std::size_t count, DType dtype, double factor);

/// out[i] = in[i] * factor as scale() computes it for elements of `sum_type(dtype)`, clamped to the range of `dtype`.
void narrow_from_sum(void* out, const void* in, std::size_t count, DType dtype, double factor);

}  // namespace farandole
