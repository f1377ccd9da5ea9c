#include "farandole/core/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace farandole {
namespace {

using Bytes = std::vector<std::uint8_t>;  // elements of a run-time type; std::vector<bool> and alignment play no part

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (is_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

// `count` elements from the `offset`-th element of 64-byte aligned memory on, between guards that must not change.
class Elements {
 public:
  Elements(std::size_t count, DType dtype, std::size_t offset)
      : element_bytes_(size_in_bytes(dtype)),
        bytes_(count * element_bytes_),
        start_(kGuardBytes + offset * element_bytes_),
        lines_((start_ + bytes_ + kGuardBytes + sizeof(Line) - 1) / sizeof(Line)) {
    std::memset(lines_.data(), kGuard, lines_.size() * sizeof(Line));
  }
  void* data() { return memory() + start_; }
  Bytes copy() const { return {memory() + start_, memory() + start_ + bytes_}; }
  void set(const Bytes& bytes) { std::copy(bytes.begin(), bytes.end(), memory() + start_); }
  bool guards_hold() const {
    for (std::size_t i = 0; i < lines_.size() * sizeof(Line); ++i) {
      if ((i < start_ || i >= start_ + bytes_) && memory()[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;
  static constexpr std::uint8_t kGuard = 0xa5;
  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  std::uint8_t* memory() { return reinterpret_cast<std::uint8_t*>(lines_.data()); }
  const std::uint8_t* memory() const { return reinterpret_cast<const std::uint8_t*>(lines_.data()); }

  std::size_t element_bytes_, bytes_, start_;
  std::vector<Line> lines_;
};

// Calls `visit` with a value of the type in which elements of `dtype` are stored.
template <class Visitor>
void with_type(DType dtype, const Visitor& visit) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return visit(std::uint8_t{});
    case DType::kI8:
      return visit(std::int8_t{});
    case DType::kU16:
      return visit(std::uint16_t{});
    case DType::kI16:
      return visit(std::int16_t{});
    case DType::kI32:
      return visit(std::int32_t{});
    case DType::kI64:
      return visit(std::int64_t{});
    case DType::kF16:
      return visit(Half{});
    case DType::kBF16:
      return visit(BFloat16{});
    case DType::kF32:
      return visit(float{});
    case DType::kF64:
      return visit(double{});
  }
}

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
  if (is_bool)
    return static_cast<T>(op == ReduceOp::kProduct || op == ReduceOp::kMin ? a != 0 && b != 0 : a != 0 || b != 0);
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

Bytes expected(const std::vector<Bytes>& inputs, std::size_t count, DType dtype, ReduceOp op) {
  Bytes result(count * size_in_bytes(dtype));
  const bool is_bool = dtype == DType::kBool;
  with_type(dtype, [&](auto sample) {
    using T = decltype(sample);
    for (std::size_t i = 0; i < count; ++i) {
      set_element(result, i, narrowed<T>(tree<T>(inputs, 0, inputs.size(), i, op, is_bool)));
    }
  });
  return result;
}

// Ordinary values, and now and then an extreme one. Random bits would be NaNs and huge numbers for the most part.
Bytes random_elements(std::size_t count, DType dtype, std::mt19937_64& random) {
  Bytes bytes(count * size_in_bytes(dtype));
  std::normal_distribution<double> normal(0.0, 3.0);
  with_type(dtype, [&](auto sample) {
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

bool is_nan_at(const Bytes& bytes, std::size_t index, DType dtype) {
  bool result = false;
  with_type(dtype, [&](auto sample) {
    using T = decltype(sample);
    if constexpr (!std::is_integral_v<T>) result = std::isnan(widened(element<T>(bytes, index)));
  });
  return result;
}

// The same bits; of NaNs only that both are (which payload survives is the compiler's choice of operand order).
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

constexpr std::uint64_t kSeed = 20240607;

TEST(Reduce, EveryTypeOperationAndInstructionSetGivesTheOraclesBits) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 15U, 16U, 17U, 31U, 33U, 63U, 65U, 127U, 255U, 1003U}) {
        const std::vector<Bytes> inputs{random_elements(count, dtype, random), random_elements(count, dtype, random)};
        const Bytes wanted = expected(inputs, count, dtype, op);
        for (const Isa isa : supported_isas()) {
          const std::size_t offset = random() % 9;
          Elements left(count, dtype, random() % 9), right(count, dtype, random() % 9), out(count, dtype, offset);
          left.set(inputs[0]);
          right.set(inputs[1]);
          reduce(out.data(), left.data(), right.data(), count, dtype, op, isa);
          ASSERT_TRUE(same(out.copy(), wanted, dtype))
              << name(dtype) << " " << name(op) << " " << name(isa) << " offset " << offset << " seed " << kSeed;
          ASSERT_TRUE(out.guards_hold() && left.guards_hold()) << name(dtype) << " " << count << " " << name(isa);
          ASSERT_EQ(left.copy(), inputs[0]);
        }
      }
    }
  }
}

TEST(Reduce, OutMayBeEitherOperand) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 301;
  for (const DType dtype : kAllDTypes) {
    for (const Isa isa : supported_isas()) {
      const std::vector<Bytes> inputs{random_elements(kCount, dtype, random), random_elements(kCount, dtype, random)};
      const std::vector<Bytes> twice{inputs[0], inputs[0]};
      Elements left(kCount, dtype, 1), right(kCount, dtype, 3);
      const auto load = [&] {
        left.set(inputs[0]);
        right.set(inputs[1]);
      };
      const Bytes wanted = expected(inputs, kCount, dtype, ReduceOp::kSum);
      load();
      reduce(left.data(), left.data(), right.data(), kCount, dtype, ReduceOp::kSum, isa);
      EXPECT_TRUE(same(left.copy(), wanted, dtype)) << name(dtype) << " " << name(isa);
      load();
      reduce(right.data(), left.data(), right.data(), kCount, dtype, ReduceOp::kSum, isa);
      EXPECT_TRUE(same(right.copy(), wanted, dtype)) << name(dtype) << " " << name(isa);
      load();
      reduce(left.data(), left.data(), left.data(), kCount, dtype, ReduceOp::kSum, isa);
      EXPECT_TRUE(same(left.copy(), expected(twice, kCount, dtype, ReduceOp::kSum), dtype)) << name(dtype);
    }
  }
}

TEST(Reduce, NothingMayBeAtNull) {
  for (const DType dtype : kAllDTypes) {
    reduce(nullptr, nullptr, nullptr, 0, dtype, ReduceOp::kSum);
    scale(nullptr, nullptr, 0, dtype, 2.0);
    for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
      reduce_many(nullptr, std::vector<const void*>(inputs, nullptr), 0, dtype, ReduceOp::kMax);
    }
  }
}

TEST(Reduce, MinAndMaxGiveNanIfEitherIsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> left{nan, 1, nan, 2, -INFINITY};
  const std::vector<float> right{1, nan, nan, 3, nan};
  for (const Isa isa : supported_isas()) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> out(5);
      reduce(out.data(), left.data(), right.data(), 5, DType::kF32, op, isa);
      for (const std::size_t i : {0U, 1U, 2U, 4U}) EXPECT_TRUE(std::isnan(out[i])) << i << name(op) << name(isa);
      EXPECT_EQ(out[3], op == ReduceOp::kMin ? 2 : 3);
    }
  }
}

TEST(Reduce, SixteenBitConversionsAreTheSameInEveryLoop) {
  // Every value meets zero, and a value that rounds; the loops convert by the same code, but vectorised.
  constexpr std::size_t kCount = 65536;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const std::uint16_t other : {std::uint16_t{0x8000}, std::uint16_t{0x3c01}}) {
      std::vector<std::uint16_t> all(kCount), second(kCount, other);
      for (std::size_t i = 0; i < kCount; ++i) all[i] = static_cast<std::uint16_t>(i);
      Bytes left(2 * kCount), right(2 * kCount);
      std::memcpy(left.data(), all.data(), 2 * kCount);
      std::memcpy(right.data(), second.data(), 2 * kCount);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin}) {
        const Bytes wanted = expected({left, right}, kCount, dtype, op);
        for (const Isa isa : supported_isas()) {
          Bytes out(2 * kCount);
          std::vector<std::uint16_t> result(kCount);
          reduce(result.data(), all.data(), second.data(), kCount, dtype, op, isa);
          std::memcpy(out.data(), result.data(), 2 * kCount);
          EXPECT_TRUE(same(out, wanted, dtype)) << name(dtype) << " " << name(op) << " " << name(isa);
        }
      }
    }
  }
}

TEST(ReduceMany, AssociatesAsTheDocumentedTree) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
        for (const std::size_t count : {1U, 37U, 1531U}) {
          std::vector<Bytes> values;
          std::vector<Elements> memory;
          std::vector<const void*> pointers;
          for (std::size_t k = 0; k < inputs; ++k) {
            values.push_back(random_elements(count, dtype, random));
            memory.emplace_back(count, dtype, random() % 9);
            memory.back().set(values.back());
          }
          for (Elements& input : memory) pointers.push_back(input.data());
          const Bytes wanted = expected(values, count, dtype, op);
          for (const Isa isa : supported_isas()) {
            Elements out(count, dtype, random() % 9);
            reduce_many(out.data(), pointers, count, dtype, op, isa);
            // One input is passed on bit by bit, but for bools, which become 0 or 1.
            Bytes single = wanted;
            if (inputs == 1 && dtype == DType::kBool) {
              for (std::uint8_t& byte : single) byte = byte != 0 ? 1 : 0;
            }
            ASSERT_TRUE(same(out.copy(), single, dtype))
                << name(dtype) << " " << name(op) << " " << name(isa) << ", " << inputs << " inputs, seed " << kSeed;
            ASSERT_TRUE(out.guards_hold());
          }
        }
      }
    }
  }
}

TEST(ReduceMany, OutMayBeAnyInput) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 1100;  // more than two blocks
  for (const DType dtype : {DType::kBool, DType::kI64, DType::kF16, DType::kF32}) {
    for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
      std::vector<Bytes> values;
      for (std::size_t k = 0; k < inputs; ++k) values.push_back(random_elements(kCount, dtype, random));
      Bytes wanted = expected(values, kCount, dtype, ReduceOp::kMax);
      if (inputs == 1 && dtype == DType::kBool) {
        for (std::uint8_t& byte : wanted) byte = byte != 0 ? 1 : 0;
      }
      for (std::size_t target = 0; target < inputs; ++target) {
        std::vector<Elements> memory(inputs, Elements(kCount, dtype, 2));
        std::vector<const void*> pointers;
        for (std::size_t k = 0; k < inputs; ++k) {
          memory[k].set(values[k]);
          pointers.push_back(memory[k].data());
        }
        reduce_many(memory[target].data(), pointers, kCount, dtype, ReduceOp::kMax);
        EXPECT_TRUE(same(memory[target].copy(), wanted, dtype)) << name(dtype) << " " << target << " of " << inputs;
      }
    }
  }
}

TEST(ReduceMany, SixteenBitTypesAreRoundedOnce) {
  // 2048 + 1 rounds to 2048 in binary16, so rounding after each addition would lose both ones.
  std::vector<Half> large(3, to_half(2048.0F)), one(3, to_half(1.0F)), out(3);
  const std::vector<const void*> inputs{large.data(), one.data(), one.data()};
  reduce_many(out.data(), inputs, 3, DType::kF16, ReduceOp::kSum);
  for (const Half value : out) EXPECT_EQ(to_float(value), 2050.0F);
}

TEST(Scale, MultipliesFloatsAndRoundsOnce) {
  std::vector<float> values(101), tripled(101);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(static_cast<float>(i) + 0.37F, static_cast<int>(i) - 50);
  }
  for (const double ranks : {3.0, 5.0, 7.0, 11.0}) {
    // Multiples of a power of two with few bits: their sum is exact, and so must be their average.
    std::vector<float> sums(101), averages(101);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(static_cast<double>(i) * ranks);
    scale(averages.data(), sums.data(), sums.size(), DType::kF32, 1.0 / ranks);
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(averages[i], static_cast<float>(i)) << ranks;
    std::vector<BFloat16> short_sums(9), short_averages(9);
    for (std::size_t i = 0; i < 9; ++i) short_sums[i] = to_bfloat16(static_cast<float>(static_cast<double>(i) * ranks));
    scale(short_averages.data(), short_sums.data(), 9, DType::kBF16, 1.0 / ranks);
    for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(to_float(short_averages[i]), static_cast<float>(i)) << ranks;
  }
  const double factor = 1.0 / 3.0;
  scale(tripled.data(), values.data(), values.size(), DType::kF32, factor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(tripled[i], static_cast<float>(static_cast<double>(values[i]) * factor)) << i;
  }
  scale(values.data(), values.data(), values.size(), DType::kF32, factor);
  EXPECT_EQ(values, tripled) << "in place";
  std::vector<double> wide{1.5, -2.0, 1e300};
  scale(wide.data(), wide.data(), 3, DType::kF64, -0.5);
  EXPECT_EQ(wide, (std::vector<double>{-0.75, 1.0, -5e299}));
}

TEST(Scale, TruncatesIntegersAndBoundsThem) {
  std::vector<std::int32_t> values{7, -7, std::numeric_limits<std::int32_t>::max(), 0};
  scale(values.data(), values.data(), 4, DType::kI32, 0.5);
  EXPECT_EQ(values, (std::vector<std::int32_t>{3, -3, 1073741823, 0}));
  std::vector<std::uint8_t> bytes{100, 200, 1};
  scale(bytes.data(), bytes.data(), 3, DType::kU8, 2.0);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{200, 255, 2}));
  scale(bytes.data(), bytes.data(), 3, DType::kU8, -1.0);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0, 0, 0}));
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> wide{kLargest, std::numeric_limits<std::int64_t>::min(), 5};
  scale(wide.data(), wide.data(), 3, DType::kI64, 2.0);
  EXPECT_EQ(wide, (std::vector<std::int64_t>{kLargest, std::numeric_limits<std::int64_t>::min(), 10}));
  scale(wide.data(), wide.data(), 3, DType::kI64, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(wide, (std::vector<std::int64_t>{0, 0, 0}));
  std::vector<std::uint8_t> bools{7, 0};
  scale(bools.data(), bools.data(), 2, DType::kBool, 1.0);
  EXPECT_EQ(bools, (std::vector<std::uint8_t>{1, 0}));
  scale(bools.data(), bools.data(), 2, DType::kBool, 0.5);
  EXPECT_EQ(bools, (std::vector<std::uint8_t>{0, 0}));
}

TEST(Isa, TheActiveOneIsSupported) {
  EXPECT_TRUE(is_supported(active_isa()));
  EXPECT_TRUE(is_supported(Isa::kBaseline));
}

}  // namespace
}  // namespace farandole
