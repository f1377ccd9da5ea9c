// SPDX-License-Identifier: Apache-2.0
// Reductions give the same bits in every floating-point mode that a program may set in its threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "farandole/core/reduce.h"
#include "foreign_mode.h"
#include "reduce_oracle.h"

namespace farandole {
namespace {

using test::Bytes, test::ForeignMode, test::kForeignModes, test::kSeed, test::Mode, test::mode_bits,
    test::supported_isas;

constexpr std::array kFloats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
constexpr std::size_t kCount = 1003;

/// Values around the smallest normal number of the type, and some that have to be rounded when they are added.
Bytes delicate_values(DType dtype, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes values(kCount * size_in_bytes(dtype));
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint64_t bits = random();
    const bool is_small = i % 2 == 0;
    const auto store = [&](auto value) { std::memcpy(values.data() + i * sizeof value, &value, sizeof value); };
    if (dtype == DType::kF64) {
      store(is_small ? bits & 0x803f'ffff'ffff'ffffULL : (bits & 0x800f'ffff'ffff'ffffULL) | 0x3fd0'0000'0000'0000ULL);
    } else if (dtype == DType::kF32) {
      const auto word = static_cast<std::uint32_t>(bits);
      store(is_small ? word & 0x81ff'ffffU : (word & 0x807f'ffffU) | 0x3e80'0000U);
    } else if (dtype == DType::kBF16) {
      const auto word = static_cast<std::uint16_t>(bits);
      store(static_cast<std::uint16_t>(is_small ? word & 0x81ffU : (word & 0x807fU) | 0x3e80U));
    } else {
      const auto word = static_cast<std::uint16_t>(bits);
      store(static_cast<std::uint16_t>(is_small ? word & 0x87ffU : (word & 0x83ffU) | 0x3400U));
    }
  }
  return values;
}

struct Results {
  std::vector<Bytes> all;
  bool operator==(const Results&) const = default;
};

/// Results of every kernel in floating-point mode `mode`, which the kernels must leave unchanged.
Results results_in(Mode mode, DType dtype) {
  std::vector<Bytes> inputs;
  std::vector<const void*> pointers;
  for (unsigned k = 0; k < 7; ++k) inputs.push_back(delicate_values(dtype, static_cast<unsigned>(kSeed) + k));
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  const ForeignMode foreign(mode);
  const std::uint64_t before = mode_bits();
  Results results;
  const auto next = [&] { return results.all.emplace_back(inputs[0].size()).data(); };
  for (const Isa isa : supported_isas()) {
    for (const ReduceOp op : kAllReduceOps) {
      if (is_bitwise(op)) continue;
      reduce(next(), inputs[0].data(), inputs[1].data(), kCount, dtype, op, isa);
      for (const std::size_t count : {2U, 3U, 4U, 7U}) {
        reduce_many(next(), std::span(pointers).first(count), kCount, dtype, op, isa);
      }
    }
  }
  for (const double factor : {1.0 / 3, 0.5, 1e-3}) scale(next(), inputs[0].data(), kCount, dtype, factor);
  EXPECT_EQ(mode_bits(), before) << "the caller's mode is another one now";
  return results;
}

TEST(FloatMode, KernelsGiveTheSameBitsInEveryMode) {
  for (const DType dtype : kFloats) {
    const Results usual = results_in(Mode::kUsual, dtype);
    for (const Mode mode : kForeignModes) {
      EXPECT_TRUE(results_in(mode, dtype) == usual) << name(dtype) << ", mode " << static_cast<int>(mode);
    }
  }
}

TEST(FloatMode, SubnormalsAreKept) {
  const ForeignMode flushing(Mode::kFlushing);
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> left(9, least), right(9, 2 * least);
  std::vector<float> sum(9);
  reduce(sum.data(), left.data(), right.data(), sum.size(), DType::kF32, ReduceOp::kSum);
  std::uint32_t bits = 0;
  std::memcpy(&bits, sum.data(), sizeof bits);
  EXPECT_EQ(bits, 3U);
}

TEST(FloatMode, IntegersAreScaledAlikeInEveryMode) {
  const std::vector<std::int64_t> values{(std::int64_t{1} << 60) + 1, -(std::int64_t{1} << 60) - 1, 12345};
  std::vector<std::int64_t> usual(3), out(3);
  scale(usual.data(), values.data(), 3, DType::kI64, 1.0 / 3);
  for (const Mode mode : kForeignModes) {
    const ForeignMode foreign(mode);
    scale(out.data(), values.data(), 3, DType::kI64, 1.0 / 3);
    EXPECT_EQ(out, usual);
  }
}

TEST(FloatMode, TheShareOfARankIsTheSameInEveryMode) {
  const double third = averaging_scale(1.0, 3);
  EXPECT_EQ(third, 1.0 / 3);
  for (const Mode mode : kForeignModes) {
    const ForeignMode foreign(mode);
    EXPECT_EQ(averaging_scale(1.0, 3), third);
    EXPECT_EQ(averaging_scale(-1.0, 3), -third);
  }
}

#if defined(__GLIBC__) && defined(__x86_64__)
TEST(FloatMode, TrapsOfTheProgramAreForTheProgram) {
  const ForeignMode restored(Mode::kUsual);
  std::vector<float> values{INFINITY, 1.0F}, other{-INFINITY, 2.0F};
  std::feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_INVALID);
  reduce(values.data(), values.data(), other.data(), 2, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(fegetexcept(), FE_INVALID) << "the program's traps are gone";
  fedisableexcept(FE_INVALID);
  EXPECT_EQ(values[1], 3.0F);
}
#endif

}  // namespace
}  // namespace farandole
