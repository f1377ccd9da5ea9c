// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "reduce_oracle.h"

namespace farandole {
namespace {

using test::Bytes, test::Elements, test::expected, test::kSeed, test::random_elements, test::same, test::supported_isas;

TEST(Reduce, EveryTypeOperationAndIsaMatchesTheOracle) {
  std::mt19937_64 random(kSeed);
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op) && is_floating_point(dtype)) continue;
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

TEST(Reduce, BitwiseOperationsCombineEachBit) {
  // Each of the four pairs of bits, in every byte; no minimum, maximum or sum gives these results.
  constexpr std::uint64_t kLeft = 0x0f33'c35a'a5f0'cc99;
  constexpr std::uint64_t kRight = 0x3355'0f0f'5ac3'3366;
  constexpr std::size_t kCount = 131;
  for (const DType dtype : kAllDTypes) {
    if (is_floating_point(dtype) || dtype == DType::kBool) continue;
    const std::size_t bytes = size_in_bytes(dtype);
    const auto repeated = [&](std::uint64_t pattern) {
      Bytes all(kCount * bytes);
      for (std::size_t i = 0; i < kCount; ++i) std::memcpy(&all[i * bytes], &pattern, bytes);
      return all;
    };
    const Bytes left = repeated(kLeft), right = repeated(kRight);
    for (const auto& [op, wanted] :
         {std::pair(ReduceOp::kBitAnd, kLeft & kRight), std::pair(ReduceOp::kBitOr, kLeft | kRight),
          std::pair(ReduceOp::kBitXor, kLeft ^ kRight)}) {
      for (const Isa isa : supported_isas()) {
        Bytes out(left.size());
        reduce(out.data(), left.data(), right.data(), kCount, dtype, op, isa);
        EXPECT_EQ(out, repeated(wanted)) << name(dtype) << " " << name(op) << " " << name(isa);
      }
    }
  }
}

TEST(Reduce, BitwiseOperationsOfBoolsAreLogical) {
  const Bytes left{0, 0, 1, 2, 0x80, 6}, right{0, 4, 0, 1, 0x7f, 6};
  for (const Isa isa : supported_isas()) {
    Bytes out(left.size());
    reduce(out.data(), left.data(), right.data(), out.size(), DType::kBool, ReduceOp::kBitAnd, isa);
    EXPECT_EQ(out, (Bytes{0, 0, 0, 1, 1, 1})) << name(isa);
    reduce(out.data(), left.data(), right.data(), out.size(), DType::kBool, ReduceOp::kBitOr, isa);
    EXPECT_EQ(out, (Bytes{0, 1, 1, 1, 1, 1})) << name(isa);
    reduce(out.data(), left.data(), right.data(), out.size(), DType::kBool, ReduceOp::kBitXor, isa);
    EXPECT_EQ(out, (Bytes{0, 1, 1, 0, 0, 0})) << name(isa);
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

TEST(Reduce, NeutralElementChangesNothing) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kCount = 100;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op) && is_floating_point(dtype)) continue;
      const Bytes values = random_elements(kCount, dtype, random);
      // A bool is 0 or 1 in results; else this changes nothing either.
      Bytes wanted(values.size()), neutral(values.size()), out(values.size());
      const void* const only = values.data();
      reduce_many(wanted.data(), {&only, 1}, kCount, dtype, op);
      fill_neutral(neutral.data(), kCount, dtype, op);
      reduce(out.data(), values.data(), neutral.data(), kCount, dtype, op);
      // The zero of sums is positive: it makes a negative zero positive, which counts as nothing.
      if (is_floating_point(dtype)) {
        reduce(wanted.data(), wanted.data(), Bytes(values.size()).data(), kCount, dtype, ReduceOp::kSum);
        reduce(out.data(), out.data(), Bytes(values.size()).data(), kCount, dtype, ReduceOp::kSum);
      }
      EXPECT_TRUE(same(out, wanted, dtype)) << name(dtype) << " " << name(op);
    }
  }
  fill_neutral(nullptr, 0, DType::kF32, ReduceOp::kMin);
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

TEST(Isa, ActiveInstructionSetIsSupported) {
  EXPECT_TRUE(is_supported(active_isa()));
  EXPECT_TRUE(is_supported(Isa::kBaseline));
}

}  // namespace
}  // namespace farandole
