// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/dtype.h"

#include <fmt/format.h>

#include "farandole/core/error.h"
#include "farandole/internal/choice.h"
#include "farandole/internal/float16.h"

namespace farandole {
namespace {

constexpr Words<kAllDTypes.size()> kDTypeNames{"bool", "u8",   "i8",  "u16", "i16", "i32", "i64",
                                               "f16",  "bf16", "f32", "f64", "u32", "u64"};
constexpr Words<kAllReduceOps.size()> kReduceOpNames{"sum",     "product", "min",    "max",
                                                     "average", "bit_and", "bit_or", "bit_xor"};

}  // namespace

void throw_no_dtype(DType dtype) {
  throw InternalError(fmt::format("there is no element type with number {}", static_cast<int>(dtype)));
}

bool is_floating_point(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

bool is_defined(ReduceOp op, DType dtype) {
  if (is_bitwise(op)) return !is_floating_point(dtype);
  return op != ReduceOp::kAverage || dtype != DType::kBool;
}

std::string_view name(DType dtype) {
  return word_of(dtype, kDTypeNames);
}
std::string_view name(ReduceOp op) {
  return is_reduce_op(op) ? kReduceOpNames[index_of(op)] : "unknown";
}
DType parse_dtype(std::string_view text) {
  return parse_word<DType>(text, "element type", kDTypeNames);
}
ReduceOp parse_reduce_op(std::string_view text) {
  return kAllReduceOps[parse_word<std::size_t>(text, "reduction", kReduceOpNames)];
}

Half to_half(float value) {
  return narrow_to_half(value);
}
float to_float(Half value) {
  return widen(value);
}
BFloat16 to_bfloat16(float value) {
  return narrow_to_bfloat16(value);
}
float to_float(BFloat16 value) {
  return widen(value);
}

}  // namespace farandole
