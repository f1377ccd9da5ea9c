// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/average.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "farandole/core/float_mode.h"
#include "farandole/core/reduce.h"

namespace farandole {
namespace {

constexpr DType kNarrow[] = {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32, DType::kU32};

/// Calls `visitor` with a zero of the C++ type of an integer `dtype`.
template <class Visitor>
void with_integer(DType dtype, const Visitor& visitor) {
  with_stored_type(dtype, [&](auto zero) {
    if constexpr (std::is_integral_v<decltype(zero)>) visitor(zero);
  });
}

/// Elements near the ends of the type's range, and others.
template <class T>
std::vector<T> numbers(std::size_t count, std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> result(count);
  for (T& each : result) {
    const std::uint64_t bits = random();
    each = bits % 4 == 0 ? Limits::max() : bits % 4 == 1 ? Limits::min() : static_cast<T>(bits >> 8);
  }
  return result;
}

TEST(Average, UsersFactorsAreFloatsForTypesUpTo32Bits) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    EXPECT_EQ(user_factor(0.1, dtype), static_cast<double>(0.1F)) << name(dtype);
  }
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kU64}) EXPECT_EQ(user_factor(0.1, dtype), 0.1);
  // As in Horovod's own test: a factor from numpy's generator, and a number that both ways of scaling round
  // differently.
  const double factor = 0.1915194503788923;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-100, 100);
  int differ = 0;
  for (int i = 0; i < 10'000; ++i) {
    const float number = uniform(random);
    float scaled = 0;
    scale(&scaled, &number, 1, DType::kF32, user_factor(factor, DType::kF32));
    ASSERT_EQ(scaled, static_cast<float>(factor) * number) << number;
    differ += scaled == static_cast<float>(factor * static_cast<double>(number)) ? 0 : 1;
  }
  EXPECT_GT(differ, 0) << "no number shows the difference";
}

TEST(Average, DividesExactlyUnlessTheUserGivesAFactor) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
    EXPECT_EQ(average_factor(1.0, dtype, 3), 1.0 / 3) << name(dtype);
  }
  EXPECT_EQ(average_factor(0.7, DType::kF32, 3), static_cast<double>(static_cast<float>(double{0.7F} / 3)));
  EXPECT_EQ(average_factor(0.7, DType::kF64, 3), 0.7 / 3);
}

TEST(Average, IntegerAverageIsExactIfTheSumOverflows) {
  std::mt19937_64 random(7);
  for (const DType dtype : kNarrow) {
    with_integer(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const std::size_t ranks : {1, 2, 3, 4, 7, 64}) {
        std::vector<std::vector<T>> inputs;
        std::vector<const void*> pointers;
        for (std::size_t rank = 0; rank < ranks; ++rank) inputs.push_back(numbers<T>(1200, random));
        for (const auto& each : inputs) pointers.push_back(each.data());
        std::vector<T> average(1200);
        const double factor = average_factor(1.0, dtype, static_cast<int>(ranks));
        reduce_and_scale(average.data(), nullptr, pointers, 1200, dtype, ReduceOp::kAverage, factor);
        for (std::size_t i = 0; i < 1200; ++i) {
          std::int64_t sum = 0;
          for (const auto& each : inputs) sum += each[i];
          ASSERT_EQ(average[i], static_cast<T>(sum / static_cast<std::int64_t>(ranks))) << name(dtype) << ", " << ranks;
        }
        reduce_and_scale(inputs[0].data(), nullptr, pointers, 1200, dtype, ReduceOp::kAverage, factor);
        EXPECT_EQ(inputs[0], average) << "in place";
      }
    });
  }
}

TEST(Average, IntegerAverageSaturatesIfAFactorOverflows) {
  const std::uint8_t bytes[] = {200, 100};
  const std::uint8_t* const inputs[] = {&bytes[0], &bytes[1]};
  std::uint8_t result = 0;
  const void* const pointers[] = {inputs[0], inputs[1]};
  reduce_and_scale(&result, nullptr, pointers, 1, DType::kU8, ReduceOp::kAverage, average_factor(3.0, DType::kU8, 2));
  EXPECT_EQ(result, 255);
  reduce_and_scale(&result, nullptr, pointers, 1, DType::kU8, ReduceOp::kAverage, average_factor(-1.0, DType::kU8, 2));
  EXPECT_EQ(result, 0);
}

TEST(Average, SumsThatTravelGiveTheSame) {
  std::mt19937_64 random(11);
  for (const DType dtype : kNarrow) {
    with_integer(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const double prescale : {1.0, 0.5, 1.25}) {
        for (const double postscale : {1.0, 0.75, 4.0}) {
          const std::vector<T> left = numbers<T>(1100, random), right = numbers<T>(1100, random);
          std::vector<T> scaled_left(1100), scaled_right(1100), wanted(1100), result(1100);
          scale(scaled_left.data(), left.data(), 1100, dtype, prescale);
          scale(scaled_right.data(), right.data(), 1100, dtype, prescale);
          const void* const pointers[] = {scaled_left.data(), scaled_right.data()};
          const double factor = average_factor(postscale, dtype, 2);
          reduce_and_scale(wanted.data(), nullptr, pointers, 1100, dtype, ReduceOp::kAverage, factor);

          const std::size_t bytes = 1100 * size_in_bytes(sum_type(dtype));
          std::vector<std::byte> wide_left(bytes), wide_right(bytes);
          widen_to_sum(wide_left.data(), left.data(), 1100, dtype, prescale);
          widen_to_sum(wide_right.data(), right.data(), 1100, dtype, prescale);
          reduce(wide_left.data(), wide_left.data(), wide_right.data(), 1100, sum_type(dtype), ReduceOp::kSum);
          narrow_from_sum(result.data(), wide_left.data(), 1100, dtype, factor);
          ASSERT_EQ(result, wanted) << name(dtype) << ", " << prescale << ", " << postscale;
        }
      }
    });
  }
}

TEST(Average, HalvesAreAddedInFloatAndRoundedOnce) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-60'000, 60'000);
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    std::vector<std::vector<Half>> inputs(static_cast<std::size_t>(ranks), std::vector<Half>(1100));
    std::vector<const void*> pointers;
    for (auto& each : inputs) {
      for (Half& number : each) number = to_half(uniform(random));
      each[0] = to_half(60'000);
      pointers.push_back(each.data());
    }
    std::vector<Half> average(1100);
    const double factor = average_factor(1.0, DType::kF16, ranks);
    reduce_and_scale(average.data(), nullptr, pointers, 1100, DType::kF16, ReduceOp::kAverage, factor);
    EXPECT_EQ(to_float(average[0]), to_float(to_half(60'000))) << ranks;
    for (std::size_t i = 0; i < 1100; ++i) {
      // Sums of so few halves are exact in float, in any order.
      float sum = 0;
      for (const auto& each : inputs) sum += to_float(each[i]);
      ASSERT_EQ(average[i].bits, to_half(sum * static_cast<float>(factor)).bits) << ranks << " ranks, element " << i;
    }
  }
}

}  // namespace
}  // namespace farandole
