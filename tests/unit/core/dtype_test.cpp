// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/float16.h"

namespace farandole {
namespace {

// The value of a binary16 by its definition.
double value_of(Half half) {
  const int exponent = (half.bits >> 10) & 31;
  const int fraction = half.bits & 1023;
  const double sign = (half.bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryValueIsExactInFloatAndComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    if (is_nan) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_EQ(to_half(value).bits, bits | 0x0200) << "NaNs keep sign and payload, and are quiet";
    } else {
      ASSERT_EQ(static_cast<double>(value), value_of(half)) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
      ASSERT_EQ(to_half(value).bits, bits);
    }
  }
}

// The halves around every midpoint between two neighbours, and the midpoint itself.
TEST(Half, RoundsToNearestAndTiesToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const Half low{bits};
    const Half high{static_cast<std::uint16_t>(bits + 1)};
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);
    const std::uint16_t even = (bits & 1) == 0 ? low.bits : high.bits;
    ASSERT_EQ(to_half(middle).bits, even) << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0F)).bits, low.bits) << bits;
    ASSERT_EQ(to_half(std::nextafter(middle, 1e9F)).bits, high.bits) << bits;
    ASSERT_EQ(to_half(-middle).bits, even | 0x8000) << bits;
  }
}

TEST(Half, OverflowGivesInfinityAndUnderflowZero) {
  EXPECT_EQ(to_half(std::nextafter(65520.0F, 0.0F)).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_half(1e30F).bits, 0x7c00);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(to_half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_half(-1e-30F).bits, 0x8000);
}

TEST(Half, ManyAreConvertedAsOneIs) {
  std::vector<Half> halves;
  std::vector<float> floats;
  std::mt19937 random(1);
  for (unsigned bits = 0; bits < 65536; ++bits) {
    halves.push_back({static_cast<std::uint16_t>(bits)});
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    floats.push_back(std::ldexp(static_cast<float>(bits), -30));  // subnormal and short halves, and ties
  }
  for (const std::size_t shorter : {0, 1, 9}) {  // the last elements are no whole vector
    std::vector<float> wide(halves.size() - shorter, 7);
    widen_all(wide.data(), halves.data(), wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(widen(halves[i]))) << i;
    }
    std::vector<Half> narrow(floats.size() - shorter);
    narrow_all(narrow.data(), floats.data(), narrow.size());
    for (std::size_t i = 0; i < narrow.size(); ++i) ASSERT_EQ(narrow[i].bits, narrow_to_half(floats[i]).bits) << i;
  }
}

TEST(BFloat16, EveryValueIsTheUpperHalfOfAFloatAndComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float value = to_float(BFloat16{static_cast<std::uint16_t>(bits)});
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    const unsigned expected = (bits & 0x7fff) > 0x7f80 ? bits | 0x0040 : bits;
    ASSERT_EQ(to_bfloat16(value).bits, expected);
  }
}

TEST(BFloat16, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const auto middle = std::bit_cast<float>((bits << 16) | 0x8000U);
    ASSERT_EQ(to_bfloat16(middle).bits, bits + (bits & 1)) << bits;
    ASSERT_EQ(to_bfloat16(std::bit_cast<float>((bits << 16) | 0x7fffU)).bits, bits) << bits;
    ASSERT_EQ(to_bfloat16(std::bit_cast<float>((bits << 16) | 0x8001U)).bits, bits + 1) << bits;
  }
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80) << "overflow gives infinity";
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7f800001U))))) << "a small payload is no infinity";
}

TEST(DType, NamesAreParsedBack) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  for (const ReduceOp op : kAllReduceOps) EXPECT_EQ(parse_reduce_op(name(op)), op);
  EXPECT_EQ(name(DType::kBF16), "bf16");
  EXPECT_EQ(name(ReduceOp::kAverage), "average");
  EXPECT_EQ(name(ReduceOp::kBitXor), "bit_xor");
}

TEST(ReduceOp, NumbersBetweenOperationsAreNone) {
  std::size_t index = 0;
  for (int number = 0; number <= 255; ++number) {
    const auto op = static_cast<ReduceOp>(number);
    const bool is_op = std::find(kAllReduceOps.begin(), kAllReduceOps.end(), op) != kAllReduceOps.end();
    EXPECT_EQ(is_reduce_op(op), is_op) << number;
    EXPECT_EQ(name(op) == "unknown", !is_op) << number;
    if (!is_op) continue;
    EXPECT_EQ(index_of(op), index) << name(op);
    ++index;
  }
  EXPECT_EQ(index, kAllReduceOps.size());
}

TEST(ReduceOp, IsDefinedForTheTypesThatItCombines) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      EXPECT_TRUE(is_defined(op, dtype)) << name(op) << " of " << name(dtype);
    }
    EXPECT_EQ(is_defined(ReduceOp::kAverage, dtype), dtype != DType::kBool);
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      EXPECT_EQ(is_defined(op, dtype), !is_floating_point(dtype)) << name(op) << " of " << name(dtype);
    }
  }
}

TEST(DType, InvalidNameErrorListsTheValidNames) {
  try {
    parse_dtype("fp32");
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'f32'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_reduce_op("Sum "), InvalidArgument);
  EXPECT_THROW(parse_reduce_op(""), InvalidArgument);
}

TEST(DType, SizesAndKinds) {
  EXPECT_EQ(size_in_bytes(DType::kBool), 1U);
  EXPECT_EQ(size_in_bytes(DType::kBF16), 2U);
  EXPECT_EQ(size_in_bytes(DType::kI32), 4U);
  EXPECT_EQ(size_in_bytes(DType::kF64), 8U);
  EXPECT_TRUE(is_floating_point(DType::kF16));
  EXPECT_FALSE(is_floating_point(DType::kI64));
  EXPECT_EQ(dtype_of<const float>, DType::kF32);
  EXPECT_EQ(dtype_of<long long>, DType::kI64);
  EXPECT_EQ(dtype_of<std::uint32_t>, DType::kU32);
  EXPECT_EQ(dtype_of<unsigned long long>, DType::kU64);
  EXPECT_EQ(size_in_bytes(DType::kU32), 4U);
  EXPECT_EQ(size_in_bytes(DType::kU64), 8U);
  EXPECT_FALSE(is_floating_point(DType::kU64));
}

TEST(Error, EachKindIsThrownAsItsClass) {
  EXPECT_THROW(throw_error(ErrorKind::kPeerLost, "x"), PeerLost);
  EXPECT_THROW(throw_error(ErrorKind::kDataError, "x"), DataError);
  EXPECT_THROW(throw_error(ErrorKind::kInternal, "x"), InternalError);
  for (int number = 0; number <= static_cast<int>(ErrorKind::kInternal); ++number) {
    const auto kind = static_cast<ErrorKind>(number);
    try {
      throw_error(kind, "the text");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_STREQ(error.message(), "the text");
      EXPECT_EQ(error.what(), std::string(name(kind)) + ": the text");
      EXPECT_STREQ(message_of(error), "the text");
      EXPECT_NE(name(kind), "unknown");
      const bool poisons = kind >= ErrorKind::kTimeout && kind <= ErrorKind::kDeviceError;
      EXPECT_EQ(poisons_job(kind), poisons) << name(kind);
    }
  }
}

TEST(Error, UncaughtNamesItsClassAndKind) {
  EXPECT_DEATH([]() noexcept { throw_error(ErrorKind::kMismatch, "rank 0 called an allreduce"); }(),
               "'farandole::Mismatch'\n.*what\\(\\): +Mismatch: rank 0 called an allreduce");
}

TEST(DType, HasTheStoredTypeOfItsSizeAndKind) {
  for (const DType dtype : kAllDTypes) {
    const bool fits = with_stored_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      return sizeof(T) == size_in_bytes(dtype) && dtype_of<T> == (dtype == DType::kBool ? DType::kU8 : dtype);
    });
    EXPECT_TRUE(fits) << name(dtype);
  }
}

}  // namespace
}  // namespace farandole
