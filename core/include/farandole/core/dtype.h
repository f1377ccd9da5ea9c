// SPDX-License-Identifier: Apache-2.0
// Element types and reduction operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Element type. The numbers are part of the protocol between processes and of engine.h: they never change.
enum class DType : std::uint8_t { kBool, kU8, kI8, kU16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kU32, kU64 };
inline constexpr int kDTypeCount = 13;
inline constexpr std::array kAllDTypes{DType::kBool, DType::kU8,  DType::kI8,  DType::kU16,  DType::kI16,
                                       DType::kI32,  DType::kI64, DType::kF16, DType::kBF16, DType::kF32,
                                       DType::kF64,  DType::kU32, DType::kU64};

/// Reduction operation. The numbers are part of the protocol and never change, as in DType. 5 is Adasum in engine.h.
///
/// kAverage divides the sum by the number of ranks and is not defined for bool. Integer averages are truncated toward
/// zero. Integer sums wrap on overflow. Averages of integers of up to 32 bits are correct even if the sum does not fit
/// the type, because the integers are added in a wider type.
///
/// kBitAnd, kBitOr and kBitXor combine the bits of integers. For bool they are the logical "and", "or" and "exclusive
/// or", with results 0 and 1. They are not defined for floating-point types, and take no factors.
enum class ReduceOp : std::uint8_t { kSum, kProduct, kMin, kMax, kAverage, kBitAnd = 6, kBitOr, kBitXor };
inline constexpr std::array kAllReduceOps{ReduceOp::kSum,     ReduceOp::kProduct, ReduceOp::kMin,   ReduceOp::kMax,
                                          ReduceOp::kAverage, ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};

constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}
/// False for a number that is no enumerator, which a message may contain.
constexpr bool is_reduce_op(ReduceOp op) {
  return op <= ReduceOp::kAverage || is_bitwise(op);
}
/// Index of `op` in kAllReduceOps, and in tables by operation.
constexpr std::size_t index_of(ReduceOp op) {
  const auto number = static_cast<std::size_t>(op);
  return is_bitwise(op) ? number - 1 : number;
}

/// IEEE binary16, storage only; arithmetic is done in float.
struct Half {
  std::uint16_t bits = 0;
};

/// bfloat16, storage only; arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

[[noreturn]] void throw_no_dtype(DType dtype);
/// Bytes per element. @throws InternalError  `dtype` is not a valid value
inline std::size_t size_in_bytes(DType dtype) {
  constexpr std::array<std::uint8_t, kDTypeCount> kBytes{1, 1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 4, 8};
  const auto index = static_cast<std::size_t>(dtype);
  if (index >= kBytes.size()) throw_no_dtype(dtype);
  return kBytes[index];
}
bool is_floating_point(DType dtype);
/// False for averages of bool, and for bitwise operations on floating-point types.
bool is_defined(ReduceOp op, DType dtype);

/// Calls `visitor(T{})`, where T is the C++ type that stores elements of `dtype`, and returns the visitor's result.
/// kBool is stored as std::uint8_t.
template <class Visitor>
auto with_stored_type(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return visitor(std::uint8_t{});
    case DType::kI8:
      return visitor(std::int8_t{});
    case DType::kU16:
      return visitor(std::uint16_t{});
    case DType::kI16:
      return visitor(std::int16_t{});
    case DType::kI32:
      return visitor(std::int32_t{});
    case DType::kI64:
      return visitor(std::int64_t{});
    case DType::kU32:
      return visitor(std::uint32_t{});
    case DType::kU64:
      return visitor(std::uint64_t{});
    case DType::kF16:
      return visitor(Half{});
    case DType::kBF16:
      return visitor(BFloat16{});
    case DType::kF32:
      return visitor(float{});
    case DType::kF64:
      break;
  }
  return visitor(double{});
}

/// Short names: "f32", "bf16", "sum", "average". @throws InvalidArgument  (parsers) unknown name; lists the valid names
std::string_view name(DType dtype);
std::string_view name(ReduceOp op);
DType parse_dtype(std::string_view text);
ReduceOp parse_reduce_op(std::string_view text);

/// Conversions. Narrowing rounds to nearest even; NaN stays NaN, and overflow gives infinity.
Half to_half(float value);
float to_float(Half value);
BFloat16 to_bfloat16(float value);
float to_float(BFloat16 value);

/// Returns the DType of a C++ type. The constant `dtype_of` below is the shorter form.
template <class T>
constexpr DType dtype_for() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) {
    return DType::kBool;
  } else if constexpr (std::is_same_v<U, Half>) {
    return DType::kF16;
  } else if constexpr (std::is_same_v<U, BFloat16>) {
    return DType::kBF16;
  } else if constexpr (std::is_same_v<U, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<U, double>) {
    return DType::kF64;
  } else if constexpr (std::is_integral_v<U> && sizeof(U) == 1) {
    return std::is_signed_v<U> ? DType::kI8 : DType::kU8;
  } else if constexpr (std::is_integral_v<U> && sizeof(U) == 2) {
    return std::is_signed_v<U> ? DType::kI16 : DType::kU16;
  } else if constexpr (std::is_integral_v<U> && sizeof(U) == 4) {
    return std::is_signed_v<U> ? DType::kI32 : DType::kU32;
  } else {
    static_assert(std::is_integral_v<U> && sizeof(U) == 8, "no DType for this C++ type");
    return std::is_signed_v<U> ? DType::kI64 : DType::kU64;
  }
}
/// The DType of a C++ type: `dtype_of<float>` is DType::kF32.
template <class T>
inline constexpr DType dtype_of = dtype_for<T>();

}  // namespace FARANDOLE_API
