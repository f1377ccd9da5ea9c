// SPDX-License-Identifier: Apache-2.0
// Reduction kernels: plain functions over contiguous elements, chosen for the processor at run time. All of them
// compute in one floating-point mode, whatever that of the calling thread is: see float_mode.h.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// The instruction sets that the kernels are compiled for.
enum class Isa { kBaseline, kAvx2, kAvx512 };
std::string_view name(Isa isa);
/// The best instruction set of this processor, bounded by the setting FARANDOLE_ISA; decided once.
Isa active_isa();
/// True if this processor can run `isa`.
bool is_supported(Isa isa);

/// out[i] = left[i] op right[i]; f16 and bf16 are combined in f32 and rounded once. `out` may be `left` or `right`.
/// kAverage adds (the division is a scale at the end); kBool: sum and max are "or", product and min are "and".
/// Integer overflow wraps. min and max give NaN if either is NaN.
/// Does not block, does not throw. Cost: one pass, 2 reads and 1 write per element.
void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op);

/// The same with a given instruction set, which the processor must support (tests and benchmarks).
void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op, Isa isa);

/// out[i] = inputs[0][i] op … op inputs[p-1][i] in one pass, associated as a balanced binary tree over the inputs:
/// ((0,1),(2,3)),…; with p no power of two the tree of the first 2^⌈log₂p⌉⁻¹ inputs is combined with that of the rest.
/// f16 and bf16 accumulate in f32 and are rounded once at the end. `out` may be one of the inputs. At least one input.
void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op);

/// The same with a given instruction set, which the processor must support (tests and benchmarks).
void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op, Isa isa);

/// out[i] = in[i] * factor; integers: computed in double, truncated toward zero, bounded by the type's range, and where
/// the factor is 1/n for a whole number n divided by n, exactly; f32 is multiplied in double and rounded once, f16 and
/// bf16 are in float. `out` may be `in`.
void scale(void* out, const void* in, std::size_t count, DType dtype, double factor);

/// out[i] = what changes nothing when it is reduced with another value: 0, 1, or the end of the type's range,
/// infinities where it has them; of bool true for min and product.
void fill_neutral(void* out, std::size_t count, DType dtype, ReduceOp op);

/// scale / ranks: what the sum of an average is multiplied by.
double averaging_scale(double scale, int ranks);

}  // namespace FARANDOLE_API
