// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace farandole::trainer {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32, 10 rounds). The block number is the lower half of its counter,
// the stream the upper half. `bits` reaches blocks below 2^62, `below` those from 2^63: half of a block's first 64
// bits.
TEST(CounterRandom, MatchesThePublishedVectors) {
  const CounterRandom zeros(0, 0);
  const std::array<std::uint32_t, 4> expected{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (std::uint64_t word = 0; word < 4; ++word) EXPECT_EQ(zeros.bits(word), expected[word]);

  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63, kOnes = ~std::uint64_t{0};
  EXPECT_EQ(CounterRandom(kOnes, kOnes).below(kOnes, kHalf), 0x41c83b0e408f276dU >> 1);
  const CounterRandom pi(0x299f31d0a4093822, 0x0370734413198a2e);
  EXPECT_EQ(pi.below(0x85a308d3243f6a88, kHalf), 0x94fdccebd16cfe09U >> 1);
}

TEST(CounterRandom, RangesAreFilledWithTheSameNumbers) {
  const CounterRandom random(123, 456);
  for (const std::uint64_t first : {0U, 1U, 2U, 3U, 4U, 1001U}) {
    std::vector<std::uint32_t> values(23);
    random.bits(first, std::span(values));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], random.bits(first + i));
  }
}

TEST(CounterRandom, UniformAndNormalHaveTheirMoments) {
  constexpr int kCount = 100000;
  const CounterRandom random(1, 2);
  double sum = 0, normal_sum = 0, normal_squares = 0, normal_fourth = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = random.uniform(i), n = random.normal(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u, normal_sum += n, normal_squares += n * n, normal_fourth += n * n * n * n;
  }
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(normal_sum / kCount, 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(normal_squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(normal_fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
}

TEST(CounterRandom, BelowIsUniform) {
  const CounterRandom random(7, 8);
  std::array<int, 6> counts{};
  for (std::uint64_t i = 0; i < 60000; ++i) ++counts.at(random.below(i, 6));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000 * 5.0 / 6));
  EXPECT_EQ(random.below(0, 1), 0U);
  constexpr std::uint64_t kLarge = (std::uint64_t{1} << 63) + 12345;
  double mean = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t value = random.below(i, kLarge);
    ASSERT_LT(value, kLarge);
    mean += static_cast<double>(value) / static_cast<double>(kLarge) / 1000;
  }
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / 1000));
}

TEST(RandomStream, DiffersByPurposeAndIndices) {
  std::set<std::uint64_t> streams;
  for (const auto purpose : {RandomPurpose::kInitialValues, RandomPurpose::kDropout, RandomPurpose::kShuffle}) {
    for (std::uint64_t a = 0; a < 30; ++a) {
      streams.insert(random_stream(purpose, {a}));
      for (std::uint64_t b = 0; b < 30; ++b) streams.insert(random_stream(purpose, {a, b}));
    }
  }
  EXPECT_EQ(streams.size(), 3U * (30 + 900));
}

}  // namespace
}  // namespace farandole::trainer
