// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <algorithm>
#include <type_traits>

namespace farandole::test {
namespace {

double to_double(Half number) {
  return to_float(number);
}
double to_double(BFloat16 number) {
  return to_float(number);
}
template <class T>
double to_double(T number) {
  return static_cast<double>(number);
}

}  // namespace

double value(int rank, std::size_t index, DType dtype, ReduceOp op) {
  const std::size_t mixed = (index * 7 + static_cast<std::size_t>(rank) * 13 + index / 11) % 97;
  if (dtype == DType::kBool) return mixed % 3 == 0 ? 1 : 0;
  if (op == ReduceOp::kProduct) return mixed % 4 == 0 ? 2 : 1;
  return static_cast<double>(mixed % 5);
}

double load(ConstBufferView view, std::size_t index) {
  return with_stored_type(view.dtype,
                          [&](auto zero) { return to_double(static_cast<const decltype(zero)*>(view.data)[index]); });
}

void store(BufferView view, std::size_t index, double number) {
  with_stored_type(view.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, Half>) {
      element = to_half(static_cast<float>(number));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      element = to_bfloat16(static_cast<float>(number));
    } else {
      element = static_cast<T>(number);
    }
    static_cast<T*>(view.data)[index] = element;
  });
}

Buffer values(int rank, std::size_t first, std::size_t count, DType dtype, ReduceOp op) {
  Buffer buffer(count, dtype);
  for (std::size_t i = 0; i < count; ++i) store(buffer.view(), i, value(rank, first + i, dtype, op));
  return buffer;
}

double reduced(int size, std::size_t index, DType dtype, ReduceOp op) {
  double result = value(0, index, dtype, op);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value(rank, index, dtype, op);
    const bool is_or = dtype == DType::kBool && op != ReduceOp::kProduct && op != ReduceOp::kMin;
    if (is_or || op == ReduceOp::kMax) {
      result = std::max(result, next);
    } else if (op == ReduceOp::kMin || dtype == DType::kBool) {
      result = std::min(result, next);
    } else if (op == ReduceOp::kProduct) {
      result *= next;
    } else {
      result += next;
    }
  }
  return result;
}

}  // namespace farandole::test
