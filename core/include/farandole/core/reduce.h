// SPDX-License-Identifier: Apache-2.0
// Reduction kernels: functions over contiguous elements in host memory. The instruction set is selected at run time;
// results do not depend on it. All kernels round to nearest and keep subnormals, whatever the calling thread's
// floating-point mode (float_mode.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Instruction sets that the kernels are compiled for.
enum class Isa { kBaseline, kAvx2, kAvx512 };
std::string_view name(Isa isa);
/// The highest instruction set that this processor supports and FARANDOLE_ISA permits. Determined once per process.
Isa active_isa();
/// True if this processor can run `isa`.
bool is_supported(Isa isa);

/// out[i] = left[i] op right[i]. `out` may equal `left` or `right`. Requires a bool or integer type for bitwise
/// operations.
///
/// f16 and bf16 are combined in f32 and rounded once. kAverage adds like kSum; the caller then divides the sum by a
/// call of scale(). For kBool, sum, max and bit_or mean "or"; product, min and bit_and mean "and"; any byte but 0 is
/// true, and results are 0 or 1. Integer overflow wraps. min and max return NaN if an operand is NaN. Does not block,
/// does not throw. Cost: one pass, 2 reads and 1 write per element.
void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op);

/// Overload that uses a given instruction set, which the processor must support. For tests and benchmarks.
void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op, Isa isa);

/// out[i] = inputs[0][i] op … op inputs[p-1][i] in one pass over memory. Requires p ≥ 1; `out` may equal an input.
///
/// Associated as a balanced binary tree over the inputs: ((0,1),(2,3)),…. If p is not a power of two, the tree of the
/// first 2^(⌈log₂p⌉-1) inputs is combined with the tree of the remaining inputs. f16 and bf16 accumulate in f32 and are
/// rounded once at the end.
void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op);

/// Overload that uses a given instruction set, which the processor must support. For tests and benchmarks.
void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op, Isa isa);

/// out[i] = in[i] * factor. `out` may equal `in`.
///
/// Integers are multiplied in double, truncated toward zero, and clamped to the type's range. If `factor` is 1/n for an
/// integer n, integers are instead divided by n, without rounding through double. f32 is multiplied in double and
/// rounded once; f16 and bf16 are multiplied in float. For kBool the factor is truncated to an integer: 0 makes all
/// elements false; any other integer leaves them as they are.
void scale(void* out, const void* in, std::size_t count, DType dtype, double factor);

/// Fills `out` with the neutral element of `op`: 0 for sum and average, 1 for product, the largest value of the type
/// for min and the smallest for max (infinities for floating-point types), all bits set for bit_and, and 0 for bit_or
/// and bit_xor. For kBool: true for min, product and bit_and, false for the other operations.
void fill_neutral(void* out, std::size_t count, DType dtype, ReduceOp op);

/// scale / ranks: the factor that turns a sum into an average.
double averaging_scale(double scale, int ranks);

}  // namespace FARANDOLE_API
