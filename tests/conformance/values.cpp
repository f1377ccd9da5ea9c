// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <algorithm>
#include <cstdint>
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

std::uint64_t random_bits(int rank, std::size_t index) {
  std::uint64_t bits = (index * 64 + static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ULL;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits & ~std::uint64_t{0xffff};
}

/// The integer of type `dtype` whose bits are the upper bits of `bits`.
double integer_of(std::uint64_t bits, DType dtype) {
  return with_stored_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) return to_double(static_cast<T>(bits >> (64 - 8 * sizeof(T))));
    return 0.0;
  });
}

std::uint64_t combined_bits(std::uint64_t left, std::uint64_t right, ReduceOp op) {
  if (op == ReduceOp::kBitAnd) return left & right;
  return op == ReduceOp::kBitOr ? left | right : left ^ right;
}

double reduced_bits(int size, std::size_t index, DType dtype, ReduceOp op) {
  std::uint64_t bits = random_bits(0, index);
  for (int rank = 1; rank < size; ++rank) bits = combined_bits(bits, random_bits(rank, index), op);
  return integer_of(bits, dtype);
}

double reduced_bools(int size, std::size_t index, ReduceOp op) {
  std::uint64_t result = value(0, index, DType::kBool, op) != 0 ? 1 : 0;
  for (int rank = 1; rank < size; ++rank) {
    result = combined_bits(result, value(rank, index, DType::kBool, op) != 0 ? 1 : 0, op);
  }
  return to_double(result);
}

}  // namespace

double value(int rank, std::size_t index, DType dtype, ReduceOp op) {
  const std::size_t mixed = (index * 7 + static_cast<std::size_t>(rank) * 13 + index / 11) % 97;
  if (dtype == DType::kBool) return mixed % 3 == 0 ? 1 : 0;
  if (is_bitwise(op)) return integer_of(random_bits(rank, index), dtype);
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
  if (is_bitwise(op)) {
    return dtype == DType::kBool ? reduced_bools(size, index, op) : reduced_bits(size, index, dtype, op);
  }
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
