// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "farandole/core/reduce.h"

namespace farandole {
namespace {

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
  constexpr auto kLargestUnsigned = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> unsigned_wide{kLargestUnsigned, 5};
  scale(unsigned_wide.data(), unsigned_wide.data(), 2, DType::kU64, 2.0);
  EXPECT_EQ(unsigned_wide, (std::vector<std::uint64_t>{kLargestUnsigned, 10}));
  scale(unsigned_wide.data(), unsigned_wide.data(), 2, DType::kU64, -1.0);
  EXPECT_EQ(unsigned_wide, (std::vector<std::uint64_t>{0, 0}));
  std::vector<std::uint8_t> bools{7, 0};
  scale(bools.data(), bools.data(), 2, DType::kBool, 1.0);
  EXPECT_EQ(bools, (std::vector<std::uint8_t>{1, 0}));
  scale(bools.data(), bools.data(), 2, DType::kBool, 0.5);
  EXPECT_EQ(bools, (std::vector<std::uint8_t>{0, 0}));
}

template <class T>
void check_quotients(DType dtype) {
  for (int divisor = 1; divisor <= 100; ++divisor) {
    std::vector<T> values;
    for (int i = 0; i <= 120; ++i) values.push_back(static_cast<T>(i));
    std::vector<T> quotients(values.size());
    scale(quotients.data(), values.data(), values.size(), dtype, averaging_scale(1.0, divisor));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(quotients[i], static_cast<T>(values[i] / divisor)) << name(dtype) << " / " << divisor;
    }
  }
}

TEST(Scale, AveragesOfIntegersAreQuotients) {
  check_quotients<std::uint8_t>(DType::kU8);
  check_quotients<std::int8_t>(DType::kI8);
  check_quotients<std::uint16_t>(DType::kU16);
  check_quotients<std::int16_t>(DType::kI16);
  check_quotients<std::int32_t>(DType::kI32);
  check_quotients<std::int64_t>(DType::kI64);
  check_quotients<std::uint32_t>(DType::kU32);
  check_quotients<std::uint64_t>(DType::kU64);
  // More digits than double has.
  constexpr std::int64_t kOdd = (std::int64_t{1} << 62) + 3;
  std::vector<std::int64_t> wide{kOdd, -kOdd, std::numeric_limits<std::int64_t>::min()};
  scale(wide.data(), wide.data(), 3, DType::kI64, averaging_scale(1.0, 3));
  constexpr std::uint64_t kOddUnsigned = (std::uint64_t{1} << 63) + 5;
  std::uint64_t unsigned_wide = kOddUnsigned;
  scale(&unsigned_wide, &unsigned_wide, 1, DType::kU64, averaging_scale(1.0, 3));
  EXPECT_EQ(unsigned_wide, kOddUnsigned / 3);
  EXPECT_EQ(wide, (std::vector<std::int64_t>{kOdd / 3, -kOdd / 3, std::numeric_limits<std::int64_t>::min() / 3}));
}

template <class T>
void check_all_quotients(DType dtype) {
  std::vector<T> values;
  for (int i = std::numeric_limits<T>::min(); i <= std::numeric_limits<T>::max(); ++i) {
    values.push_back(static_cast<T>(i));
  }
  std::vector<T> quotients(values.size());
  for (const std::int64_t divisor :
       {2, 3, 7, 49, 127, 128, 255, 257, 32767, 32768, 65535, 65537, 1 << 24, (1 << 24) + 1}) {
    scale(quotients.data(), values.data(), values.size(), dtype, 1.0 / static_cast<double>(divisor));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(quotients[i], static_cast<T>(values[i] / divisor))
          << name(dtype) << ": " << +values[i] << " / " << divisor;
    }
  }
}

TEST(Scale, EveryAverageOfShortIntegersIsAQuotient) {
  check_all_quotients<std::uint8_t>(DType::kU8);
  check_all_quotients<std::int8_t>(DType::kI8);
  check_all_quotients<std::uint16_t>(DType::kU16);
  check_all_quotients<std::int16_t>(DType::kI16);
}

}  // namespace
}  // namespace farandole
