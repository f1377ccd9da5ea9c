// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/reduce.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

#include "arithmetic/reduce_tables.h"
#include "farandole/core/float_mode.h"
#include "farandole/core/settings.h"
#include "farandole/internal/average.h"
#include "farandole/internal/choice.h"
#include "farandole/internal/float16.h"

namespace farandole {
namespace {

using kernels::FinalKernel;
using kernels::Kernel;
using kernels::KernelSet;

constexpr kernels::IsaTable kBaselineTable = kernels::isa_table<Isa::kBaseline>();
#if defined(__x86_64__)
constexpr kernels::IsaTable kAvx2Table = kernels::isa_table<Isa::kAvx2>();
constexpr kernels::IsaTable kAvx512Table = kernels::isa_table<Isa::kAvx512>();
#endif

const kernels::IsaTable& table_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Table;
  if (isa == Isa::kAvx2) return kAvx2Table;
#endif
  assert(is_supported(isa));
  (void)isa;
  return kBaselineTable;
}

const KernelSet& bit_kernels_of(Isa isa, DType dtype, ReduceOp op) {
  assert(is_defined(op, dtype));
  const auto width = static_cast<std::size_t>(std::countr_zero(size_in_bytes(dtype)));
  return table_of(isa).combine_bits[dtype == DType::kBool ? 0 : 1 + width][index_of(op) - index_of(ReduceOp::kBitAnd)];
}

const KernelSet& kernels_of(Isa isa, DType dtype, ReduceOp op) {
  if (is_bitwise(op)) return bit_kernels_of(isa, dtype, op);
  const ReduceOp kind = op == ReduceOp::kAverage ? ReduceOp::kSum : op;
  return table_of(isa).combine[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(kind)];
}

// Elements per block. All inputs are combined block by block; with elements of 8 bytes the scratch memory of a tree of
// depth 4 fits in a level-1 cache.
constexpr std::size_t kBlockElements = 512;
struct alignas(64) Scratch {
  std::array<std::byte, kBlockElements * sizeof(double)> bytes;
};

// Number of inputs in the left subtree of a tree over `inputs` >= 2: the largest power of two below `inputs`.
std::size_t left_inputs(std::size_t inputs) {
  return std::bit_floor(inputs - 1);
}

// Combines a block, elements [first, first + count) of every input. Returns the address of the result: `scratch`, or
// the block in the input if there is a single input that needs no conversion.
const void* combine_block(const KernelSet& kernels, std::span<const void* const> inputs, std::size_t first,
                          std::size_t count, std::size_t element_bytes, Scratch& scratch) {
  if (inputs.size() == 1) {
    if (kernels.widen == nullptr) return static_cast<const std::byte*>(inputs[0]) + first * element_bytes;
    kernels.widen(scratch.bytes.data(), inputs.data(), first, count);
  } else if (inputs.size() == 2) {
    kernels.pair_wide(scratch.bytes.data(), inputs.data(), first, count);
  } else if (inputs.size() == 4) {
    kernels.quad_wide(scratch.bytes.data(), inputs.data(), first, count);
  } else {
    Scratch right_scratch;
    const std::size_t split = left_inputs(inputs.size());
    const std::array<const void*, 2> halves{
        combine_block(kernels, inputs.first(split), first, count, element_bytes, scratch),
        combine_block(kernels, inputs.subspan(split), first, count, element_bytes, right_scratch)};
    kernels.wide_pair(scratch.bytes.data(), halves.data(), 0, count);
  }
  return scratch.bytes.data();
}

// Not inlined: calls with few inputs and elements would pay for the scratch memory.
[[gnu::noinline]] void reduce_tree(const KernelSet& kernels, void* out, std::span<const void* const> inputs,
                                   std::size_t count, std::size_t element_bytes) {
  Scratch left_scratch;
  Scratch right_scratch;
  const std::size_t split = left_inputs(inputs.size());
  for (std::size_t first = 0; first < count; first += kBlockElements) {
    const std::size_t length = std::min(kBlockElements, count - first);
    const std::array<const void*, 2> halves{
        combine_block(kernels, inputs.first(split), first, length, element_bytes, left_scratch),
        combine_block(kernels, inputs.subspan(split), first, length, element_bytes, right_scratch)};
    kernels.wide_pair_final(static_cast<std::byte*>(out) + first * element_bytes, halves.data(), 0, length);
  }
}

/// Sums in f32, multiplies, and rounds once. Not inlined: other reductions would pay for the scratch memory.
[[gnu::noinline]] void average_halves(void* out, std::span<const void* const> inputs, std::size_t count,
                                      double factor) {
  const FloatMode mode;
  const kernels::IsaTable& table = table_of(active_isa());
  const KernelSet& kernels = kernels_of(active_isa(), DType::kF16, ReduceOp::kSum);
  Scratch scratch;
  for (std::size_t first = 0; first < count; first += kBlockElements) {
    const std::size_t length = std::min(kBlockElements, count - first);
    const void* const sums = combine_block(kernels, inputs, first, length, sizeof(Half), scratch);
    table.scale_half_sums(static_cast<Half*>(out) + first, sums, length, factor);
  }
}

/// The kernels of sums of `dtype` that are multiplied by `factor`; null if there are none.
const kernels::ScaledSums* scaled_sums_of(const kernels::IsaTable& table, DType dtype, double factor) {
  if (dtype == DType::kBF16) return &table.scaled_bf16;
  if (dtype == DType::kF64) return &table.scaled_f64;
  if (dtype != DType::kF32) return nullptr;
  // A double holds the product of two floats exactly.
  return static_cast<double>(static_cast<float>(factor)) == factor ? &table.scaled_f32_in_f32 : &table.scaled_f32;
}

/// The kernel that reduces, multiplies and stores in one pass; null if there is none, or if it would do no more than
/// reduce_many().
FinalKernel final_kernel(Isa isa, DType dtype, ReduceOp op, std::size_t inputs, double factor, bool twice) {
  if (inputs != 2 && inputs != 4) return nullptr;
  const bool is_pair = inputs == 2;
  if (factor == 1.0) {
    if (!twice || (op == ReduceOp::kAverage && sum_type(dtype) != dtype)) return nullptr;
    const KernelSet& kernels = kernels_of(isa, dtype, op);
    return is_pair ? kernels.pair_twice : kernels.quad_twice;
  }
  if (op != ReduceOp::kSum && op != ReduceOp::kAverage) return nullptr;
  const kernels::ScaledSums* const sums = scaled_sums_of(table_of(isa), dtype, factor);
  if (sums == nullptr) return nullptr;
  if (is_pair) return twice ? sums->pair_twice : sums->pair;
  return twice ? sums->quad_twice : sums->quad;
}

template <class T>
void scale_integers(void* out, const void* in, std::size_t count, double factor) {
  auto* target = static_cast<T*>(out);
  const auto* source = static_cast<const T*>(in);
  if (const double divisor = kernels::divisor_of(factor); divisor != 0) {
    const auto exact_divisor = static_cast<kernels::QuotientType<T>>(divisor);
    for (std::size_t i = 0; i < count; ++i) target[i] = kernels::divide(source[i], exact_divisor);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) target[i] = kernels::truncate<T>(static_cast<double>(source[i]) * factor);
}

void scale_bools(void* out, const void* in, std::size_t count, double factor) {
  const auto of_true = static_cast<std::uint8_t>(kernels::truncate<std::int32_t>(factor) != 0);
  for (std::size_t i = 0; i < count; ++i) {
    const bool value = static_cast<const std::uint8_t*>(in)[i] != 0;
    static_cast<std::uint8_t*>(out)[i] = value ? of_true : std::uint8_t{0};
  }
}

template <class T>
T neutral_element(ReduceOp op) {
  using Value = std::conditional_t<std::is_integral_v<T>, T, kernels::Accumulator<T>>;
  using Limits = std::numeric_limits<Value>;
  constexpr Value kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  constexpr Value kLowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  Value value{0};
  if (op == ReduceOp::kProduct) value = 1;
  if (op == ReduceOp::kMin) value = kHighest;
  if (op == ReduceOp::kMax) value = kLowest;
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBitAnd) value = static_cast<Value>(~std::make_unsigned_t<Value>{0});
  }
  return kernels::convert<T>(value);
}

#if defined(__x86_64__)
// Checks F16C by cpuid, because clang's __builtin_cpu_supports does not know its name.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

Isa choose_isa() {
  const std::string bound = Settings::from_environment().process.isa;
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    const bool allowed = bound == "auto" || bound == name(isa) || (bound == "avx512" && isa == Isa::kAvx2);
    if (allowed && is_supported(isa)) return isa;
  }
  return Isa::kBaseline;
}

}  // namespace

std::string_view name(Isa isa) {
  return word_of(isa, Words<3>{"baseline", "avx2", "avx512"});
}

bool is_supported(Isa isa) {
#if defined(__x86_64__)
  // __builtin_cpu_supports also checks that the operating system saves the registers.
  if (isa == Isa::kAvx512) {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
  if (isa == Isa::kAvx2) return __builtin_cpu_supports("avx2") != 0 && has_f16c();
#endif
  return isa == Isa::kBaseline;
}

Isa active_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op) {
  reduce(out, left, right, count, dtype, op, active_isa());
}

void reduce(void* out, const void* left, const void* right, std::size_t count, DType dtype, ReduceOp op, Isa isa) {
  const FloatMode mode;
  const std::array<const void*, 2> inputs{left, right};
  kernels_of(isa, dtype, op).pair(out, inputs.data(), 0, count);
}

void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op) {
  reduce_many(out, inputs, count, dtype, op, active_isa());
}

void reduce_many(void* out, std::span<const void* const> inputs, std::size_t count, DType dtype, ReduceOp op, Isa isa) {
  assert(!inputs.empty());
  const FloatMode mode;
  const KernelSet& kernels = kernels_of(isa, dtype, op);
  if (inputs.size() == 2) return kernels.pair(out, inputs.data(), 0, count);
  if (inputs.size() == 4) return kernels.quad(out, inputs.data(), 0, count);
  if (inputs.size() == 1) {
    // Normalizes bools, which may be stored as any byte, to 0 or 1: "x or x" is x.
    if (dtype == DType::kBool) return reduce(out, inputs[0], inputs[0], count, dtype, ReduceOp::kMax, isa);
    if (out != inputs[0] && count > 0) std::memcpy(out, inputs[0], count * size_in_bytes(dtype));
    return;
  }
  reduce_tree(kernels, out, inputs, count, size_in_bytes(dtype));
}

void reduce_and_scale(void* out, void* also, std::span<const void* const> inputs, std::size_t count, DType dtype,
                      ReduceOp op, double factor) {
  reduce_and_scale(out, also, inputs, count, dtype, op, factor, active_isa());
}

void reduce_and_scale(void* out, void* also, std::span<const void* const> inputs, std::size_t count, DType dtype,
                      ReduceOp op, double factor, Isa isa) {
  const FinalKernel kernel = final_kernel(isa, dtype, op, inputs.size(), factor, also != nullptr);
  if (kernel != nullptr) {
    const FloatMode mode;
    return kernel({out, also, factor}, inputs.data(), count);
  }
  if (op == ReduceOp::kAverage && dtype == DType::kF16) {
    average_halves(out, inputs, count, factor);
  } else if (op == ReduceOp::kAverage && sum_type(dtype) != dtype) {
    average_integers(out, inputs, count, dtype, factor);
  } else {
    reduce_many(out, inputs, count, dtype, op, isa);
    if (factor != 1.0) scale(out, out, count, dtype, factor);
  }
  if (also != nullptr && count > 0) std::memcpy(also, out, count * size_in_bytes(dtype));
}

void scale(void* out, const void* in, std::size_t count, DType dtype, double factor) {
  const FloatMode mode;
  if (dtype == DType::kBool) return scale_bools(out, in, count, factor);
  if (is_floating_point(dtype)) {
    return table_of(active_isa()).scale[static_cast<std::size_t>(dtype)](out, in, count, factor);
  }
  with_stored_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) scale_integers<T>(out, in, count, factor);
  });
}

void widen_all(float* out, const Half* in, std::size_t count) {
  const FloatMode mode;
  const void* const input = in;
  kernels_of(active_isa(), DType::kF16, ReduceOp::kSum).widen(out, &input, 0, count);
}

void narrow_all(Half* out, const float* in, std::size_t count) {
  const FloatMode mode;
  table_of(active_isa()).narrow_halves(out, in, count);
}

void fill_neutral(void* out, std::size_t count, DType dtype, ReduceOp op) {
  if (dtype == DType::kBool) {
    const bool is_and = op == ReduceOp::kMin || op == ReduceOp::kProduct || op == ReduceOp::kBitAnd;
    std::fill_n(static_cast<std::uint8_t*>(out), count, static_cast<std::uint8_t>(is_and));
    return;
  }
  with_stored_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(out), count, neutral_element<T>(op));
  });
}

double averaging_scale(double scale, int ranks) {
  const FloatMode mode;
  const volatile double dividend = scale;  // volatile: keeps the division inside the scope of FloatMode
  const volatile double quotient = dividend / ranks;
  return quotient;
}

}  // namespace farandole
