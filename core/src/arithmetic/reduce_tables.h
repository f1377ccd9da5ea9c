// SPDX-License-Identifier: Apache-2.0
// Tables of kernels, by instruction set, type and operation.
#pragma once

#include <array>
#include <type_traits>

#include "arithmetic/half_kernels.h"
#include "arithmetic/reduce_kernels.h"

namespace farandole::kernels {

/// Kernels of a type and operation for an instruction set. T is the stored type, A the accumulator.
struct KernelSet {
  Kernel widen;            ///< T → A; null if T is A
  Kernel pair;             ///< T, T → T
  Kernel pair_wide;        ///< T, T → A
  Kernel quad;             ///< T, T, T, T → T
  Kernel quad_wide;        ///< T, T, T, T → A
  Kernel wide_pair;        ///< A, A → A
  Kernel wide_pair_final;  ///< A, A → T
  FinalKernel pair_twice;  ///< T, T → T, T, without the factor; null for f16
  FinalKernel quad_twice;  ///< T, T, T, T → T, T, without the factor; null for f16
};

/// Kernels of sums that are multiplied by a factor.
struct ScaledSums {
  FinalKernel pair, pair_twice;
  FinalKernel quad, quad_twice;
};

template <Isa isa, class T, class Wide>
constexpr ScaledSums scaled_sums() {
  using Run = Target<isa>;
  return {Run::template finish<CombineAndFinish<T, Sum, 2, Wide, false>>,
          Run::template finish<CombineAndFinish<T, Sum, 2, Wide, true>>,
          Run::template finish<CombineAndFinish<T, Sum, 4, Wide, false>>,
          Run::template finish<CombineAndFinish<T, Sum, 4, Wide, true>>};
}

template <Isa isa, class T, class Op>
constexpr KernelSet kernel_set() {
  using A = Accumulator<T>;
  using Run = Target<isa>;
  KernelSet set{};
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, Half> && isa != Isa::kBaseline) {
    return {widen_halves<isa>,
            combine_halves<isa, Half, Half, Op, 2>,
            combine_halves<isa, Half, float, Op, 2>,
            combine_halves<isa, Half, Half, Op, 4>,
            combine_halves<isa, Half, float, Op, 4>,
            Run::template combine<Combine<float, float, Op, 2>>,
            combine_halves<isa, float, Half, Op, 2>,
            nullptr,
            nullptr};
  }
#endif
  if constexpr (!std::is_same_v<T, A>) set.widen = Run::template combine<Combine<T, A, void, 1>>;
  set.pair = Run::template combine<Combine<T, T, Op, 2>>;
  set.pair_wide = Run::template combine<Combine<T, A, Op, 2>>;
  set.quad = Run::template combine<Combine<T, T, Op, 4>>;
  set.quad_wide = Run::template combine<Combine<T, A, Op, 4>>;
  set.wide_pair = Run::template combine<Combine<A, A, Op, 2>>;
  set.wide_pair_final = Run::template combine<Combine<A, T, Op, 2>>;
  set.pair_twice = Run::template finish<CombineAndFinish<T, Op, 2, void, true>>;
  set.quad_twice = Run::template finish<CombineAndFinish<T, Op, 4, void, true>>;
  return set;
}

/// Indexed by ReduceOp up to kMax.
using OpTable = std::array<KernelSet, 4>;

template <Isa isa, class T>
constexpr OpTable op_table() {
  return {kernel_set<isa, T, Sum>(), kernel_set<isa, T, Product>(), kernel_set<isa, T, Min>(),
          kernel_set<isa, T, Max>()};
}

/// Kernels of bitwise operations, indexed from kBitAnd.
using BitTable = std::array<KernelSet, 3>;

template <Isa isa, class T>
constexpr BitTable bit_table() {
  return {kernel_set<isa, T, BitAnd>(), kernel_set<isa, T, BitOr>(), kernel_set<isa, T, BitXor>()};
}

template <Isa isa>
void narrow_halves(Half* out, const float* in, std::size_t count) {
#if defined(__x86_64__)
  if constexpr (isa != Isa::kBaseline) return HalfConversion<isa>::narrow_all(out, in, count);
#endif
  for (std::size_t i = 0; i < count; ++i) out[i] = narrow_to_half(in[i]);
}

/// All kernels of an instruction set, indexed by DType.
struct IsaTable {
  std::array<OpTable, kDTypeCount> combine;
  std::array<BitTable, 5> combine_bits;        ///< of bool, then of integers of 1, 2, 4 and 8 bytes
  std::array<ScaleKernel, kDTypeCount> scale;  ///< null for bool and integers
  ScaleKernel scale_half_sums;                 ///< multiplies sums in f32 and narrows them to f16
  void (*narrow_halves)(Half* out, const float* in, std::size_t count);
  ScaledSums scaled_bf16, scaled_f32, scaled_f64;
  ScaledSums scaled_f32_in_f32;  ///< for factors that float represents: the same bits, without conversions to double
};

template <Isa isa>
constexpr ScaleKernel half_scale() {
#if defined(__x86_64__)
  if constexpr (isa != Isa::kBaseline) return scale_halves<isa>;
#endif
  return Target<isa>::template scale<Scale<Half>>;
}

template <Isa isa>
constexpr ScaleKernel half_sums_scale() {
#if defined(__x86_64__)
  if constexpr (isa != Isa::kBaseline) return scale_half_sums<isa>;
#endif
  return Target<isa>::template scale<ScaleSums<Half>>;
}

template <Isa isa>
constexpr IsaTable isa_table() {
  using Run = Target<isa>;
  return {{op_table<isa, Bool>(), op_table<isa, std::uint8_t>(), op_table<isa, std::int8_t>(),
           op_table<isa, std::uint16_t>(), op_table<isa, std::int16_t>(), op_table<isa, std::int32_t>(),
           op_table<isa, std::int64_t>(), op_table<isa, Half>(), op_table<isa, BFloat16>(), op_table<isa, float>(),
           op_table<isa, double>(), op_table<isa, std::uint32_t>(), op_table<isa, std::uint64_t>()},
          {bit_table<isa, Bool>(), bit_table<isa, std::uint8_t>(), bit_table<isa, std::uint16_t>(),
           bit_table<isa, std::uint32_t>(), bit_table<isa, std::uint64_t>()},
          {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, half_scale<isa>(),
           Run::template scale<Scale<BFloat16>>, Run::template scale<Scale<float>>, Run::template scale<Scale<double>>,
           nullptr, nullptr},
          half_sums_scale<isa>(),
          narrow_halves<isa>,
          scaled_sums<isa, BFloat16, float>(),
          scaled_sums<isa, float, double>(),
          scaled_sums<isa, double, double>(),
          scaled_sums<isa, float, float>()};
}

}  // namespace farandole::kernels
