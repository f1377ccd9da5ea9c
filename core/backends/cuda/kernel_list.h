// SPDX-License-Identifier: Apache-2.0
// List of all kernels: X(name without "farandole_", class with the body).
// FARANDOLE_PACKING_KERNELS is the part of the list that packs and unpacks tensors, many at a time.
#pragma once

#include "cuda/kernels.h"

// NOLINTBEGIN(bugprone-macro-parentheses): types and parts of names
#define FARANDOLE_REDUCE_KERNELS(X, dtype, type)                           \
  X(reduce_##dtype##_sum, Elementwise<Reduce<type, kernels::Sum>>)         \
  X(reduce_##dtype##_product, Elementwise<Reduce<type, kernels::Product>>) \
  X(reduce_##dtype##_min, Elementwise<Reduce<type, kernels::Min>>)         \
  X(reduce_##dtype##_max, Elementwise<Reduce<type, kernels::Max>>)

// Signed integers use the kernels of the unsigned ones.
#define FARANDOLE_BIT_KERNELS(X, dtype, type)                             \
  X(reduce_##dtype##_bit_and, Elementwise<Reduce<type, kernels::BitAnd>>) \
  X(reduce_##dtype##_bit_or, Elementwise<Reduce<type, kernels::BitOr>>)   \
  X(reduce_##dtype##_bit_xor, Elementwise<Reduce<type, kernels::BitXor>>)

#define FARANDOLE_INTEGER_KERNELS(X, dtype, type) \
  FARANDOLE_REDUCE_KERNELS(X, dtype, type)        \
  X(scale_##dtype, ScaleIntegers<type>)

#define FARANDOLE_CAST_KERNELS(X, left, left_type, right, right_type) \
  X(cast_##left##_##right, Elementwise<Cast<left_type, right_type>>)  \
  X(cast_##right##_##left, Elementwise<Cast<right_type, left_type>>)

#define FARANDOLE_ORDER_KERNELS(X, dtype, type)                          \
  X(order_##dtype##_min, Elementwise<ToOrdered<type, kernels::Min>>)     \
  X(order_##dtype##_max, Elementwise<ToOrdered<type, kernels::Max>>)     \
  X(restore_##dtype##_min, Elementwise<FromOrdered<type, kernels::Min>>) \
  X(restore_##dtype##_max, Elementwise<FromOrdered<type, kernels::Max>>)

#define FARANDOLE_PACKING_KERNELS(X)                     \
  X(copy, Elementwise<Copy<std::uint8_t>>)               \
  X(scale_f16, Elementwise<Multiply<Half>>)              \
  X(scale_bf16, Elementwise<Multiply<BFloat16>>)         \
  X(scale_f32, Elementwise<Multiply<float>>)             \
  X(scale_f64, Elementwise<Multiply<double>>)            \
  FARANDOLE_CAST_KERNELS(X, f16, Half, bf16, BFloat16)   \
  FARANDOLE_CAST_KERNELS(X, f16, Half, f32, float)       \
  FARANDOLE_CAST_KERNELS(X, f16, Half, f64, double)      \
  FARANDOLE_CAST_KERNELS(X, bf16, BFloat16, f32, float)  \
  FARANDOLE_CAST_KERNELS(X, bf16, BFloat16, f64, double) \
  FARANDOLE_CAST_KERNELS(X, f32, float, f64, double)

#define FARANDOLE_KERNELS(X)                                       \
  FARANDOLE_PACKING_KERNELS(X)                                     \
  FARANDOLE_REDUCE_KERNELS(X, bool, kernels::Bool)                 \
  FARANDOLE_INTEGER_KERNELS(X, u8, std::uint8_t)                   \
  FARANDOLE_INTEGER_KERNELS(X, i8, std::int8_t)                    \
  FARANDOLE_INTEGER_KERNELS(X, u16, std::uint16_t)                 \
  FARANDOLE_INTEGER_KERNELS(X, i16, std::int16_t)                  \
  FARANDOLE_INTEGER_KERNELS(X, i32, std::int32_t)                  \
  FARANDOLE_INTEGER_KERNELS(X, i64, std::int64_t)                  \
  FARANDOLE_INTEGER_KERNELS(X, u32, std::uint32_t)                 \
  FARANDOLE_INTEGER_KERNELS(X, u64, std::uint64_t)                 \
  FARANDOLE_BIT_KERNELS(X, bool, kernels::Bool)                    \
  FARANDOLE_BIT_KERNELS(X, u8, std::uint8_t)                       \
  FARANDOLE_BIT_KERNELS(X, u16, std::uint16_t)                     \
  FARANDOLE_BIT_KERNELS(X, u32, std::uint32_t)                     \
  FARANDOLE_BIT_KERNELS(X, u64, std::uint64_t)                     \
  FARANDOLE_REDUCE_KERNELS(X, f16, Half)                           \
  FARANDOLE_REDUCE_KERNELS(X, bf16, BFloat16)                      \
  FARANDOLE_REDUCE_KERNELS(X, f32, float)                          \
  FARANDOLE_REDUCE_KERNELS(X, f64, double)                         \
  FARANDOLE_CAST_KERNELS(X, u8, std::uint8_t, i32, std::int32_t)   \
  FARANDOLE_CAST_KERNELS(X, i8, std::int8_t, i32, std::int32_t)    \
  FARANDOLE_CAST_KERNELS(X, u16, std::uint16_t, i32, std::int32_t) \
  FARANDOLE_CAST_KERNELS(X, i16, std::int16_t, i32, std::int32_t)  \
  FARANDOLE_CAST_KERNELS(X, i32, std::int32_t, i64, std::int64_t)  \
  FARANDOLE_CAST_KERNELS(X, u32, std::uint32_t, i64, std::int64_t) \
  FARANDOLE_ORDER_KERNELS(X, f32, float)                           \
  FARANDOLE_ORDER_KERNELS(X, f64, double)
// NOLINTEND(bugprone-macro-parentheses)
