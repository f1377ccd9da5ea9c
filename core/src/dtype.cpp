// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/dtype.h"

#include <fmt/format.h>

#include <vector>

#include "choice.h"
#include "farandole/core/error.h"
#include "farandole/internal/float16.h"

namespace farandole {
namespace {

template <class Value, std::size_t kCount>
Value parse_name(std::string_view text, std::string_view what, const std::array<Value, kCount>& all) {
  std::vector<std::string_view> names;
  for (const Value value : all) {
    if (name(value) == text) return value;
    names.push_back(name(value));
  }
  throw_no_such(text, what, names);
}

}  // namespace

void throw_no_dtype(DType dtype) {
  throw InternalError(fmt::format("there is no element type with number {}", static_cast<int>(dtype)));
}

bool is_floating_point(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kU16:
      return "u16";
    case DType::kI16:
      return "i16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
  }
  return "unknown";
}

std::string_view name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kAverage:
      return "average";
  }
  return "unknown";
}

DType parse_dtype(std::string_view text) {
  return parse_name(text, "element type", kAllDTypes);
}

ReduceOp parse_reduce_op(std::string_view text) {
  return parse_name(text, "reduction", kAllReduceOps);
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
