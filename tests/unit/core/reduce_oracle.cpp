// SPDX-License-Identifier: Apache-2.0
#include "reduce_oracle.h"

#include <cmath>
#include <type_traits>

namespace farandole::test {
namespace {

template <class T>
T element(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void set_element(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

float widened(Half value) {
  return to_float(value);
}
float widened(BFloat16 value) {
  return to_float(value);
}
template <class T>
T widened(T value) {
  return value;
}
template <class T, class Wide>
T narrowed(Wide value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else {
    return value;
  }
}

// One combination, written as plainly as possible: through 128-bit-safe steps for integers, by <cmath> for floats.
template <class T>
T combined(T a, T b, ReduceOp op, bool is_bool) {
  if (is_bool && op == ReduceOp::kBitXor) return static_cast<T>((a != 0) != (b != 0));
  if (is_bool) {
    const bool is_and = op == ReduceOp::kProduct || op == ReduceOp::kMin || op == ReduceOp::kBitAnd;
    return static_cast<T>(is_and ? a != 0 && b != 0 : a != 0 || b != 0);
  }
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
      if (a == b) return b;  // the sign of a zero is the right operand's
    }
    return (op == ReduceOp::kMin) == (a < b) ? a : b;
  }
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    if (op == ReduceOp::kBitAnd) return static_cast<T>(x & y);
    if (op == ReduceOp::kBitOr) return static_cast<T>(x | y);
    if (op == ReduceOp::kBitXor) return static_cast<T>(x ^ y);
    return static_cast<T>(op == ReduceOp::kProduct ? x * y : x + y);
  } else {
    return op == ReduceOp::kProduct ? a * b : a + b;
  }
}

// The documented tree over inputs [first, first + length), for one element, in the accumulation type.
template <class T>
auto tree(const std::vector<Bytes>& inputs, std::size_t first, std::size_t length, std::size_t index, ReduceOp op,
          bool is_bool) -> decltype(widened(T{})) {
  if (length == 1) return widened(element<T>(inputs[first], index));
  std::size_t left = 1;
  while (2 * left < length) left *= 2;
  return combined(tree<T>(inputs, first, left, index, op, is_bool),
                  tree<T>(inputs, first + left, length - left, index, op, is_bool), op, is_bool);
}

bool is_nan_at(const Bytes& bytes, std::size_t index, DType dtype) {
  bool result = false;
  with_stored_type(dtype, [&](auto sample) {
    using T = decltype(sample);
    if constexpr (!std::is_integral_v<T>) result = std::isnan(widened(element<T>(bytes, index)));
  });
  return result;
}

}  // namespace

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (is_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

Bytes expected(const std::vector<Bytes>& inputs, std::size_t count, DType dtype, ReduceOp op) {
  Bytes result(count * size_in_bytes(dtype));
  const bool is_bool = dtype == DType::kBool;
  with_stored_type(dtype, [&](auto sample) {
    using T = decltype(sample);
    for (std::size_t i = 0; i < count; ++i) {
      set_element(result, i, narrowed<T>(tree<T>(inputs, 0, inputs.size(), i, op, is_bool)));
    }
  });
  return result;
}

Bytes random_elements(std::size_t count, DType dtype, std::mt19937_64& random) {
  Bytes bytes(count * size_in_bytes(dtype));
  std::normal_distribution<double> normal(0.0, 3.0);
  with_stored_type(dtype, [&](auto sample) {
    using T = decltype(sample);
    const auto extremes = {0.0, -0.0, 1e-45, -6e-8, 65504.0, 1e38, HUGE_VAL, -HUGE_VAL};
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        const std::uint64_t bits = random();
        set_element(bytes, i, static_cast<T>(dtype == DType::kBool && bits % 2 == 0 ? 0 : bits >> 32 | bits << 32));
      } else {
        const bool extreme = random() % 16 == 0;
        const double value = extreme ? extremes.begin()[random() % extremes.size()] : normal(random);
        using Wide = decltype(widened(T{}));
        set_element(bytes, i, narrowed<T>(static_cast<Wide>(value)));
      }
    }
  });
  return bytes;
}

testing::AssertionResult same(const Bytes& seen, const Bytes& wanted, DType dtype) {
  const std::size_t element_bytes = size_in_bytes(dtype);
  for (std::size_t i = 0; i * element_bytes < wanted.size(); ++i) {
    const std::size_t at = i * element_bytes;
    if (std::memcmp(seen.data() + at, wanted.data() + at, element_bytes) == 0) continue;
    if (is_nan_at(seen, i, dtype) && is_nan_at(wanted, i, dtype)) continue;
    return testing::AssertionFailure() << "element " << i << " of " << wanted.size() / element_bytes << " differs";
  }
  return testing::AssertionSuccess();
}

}  // namespace farandole::test
