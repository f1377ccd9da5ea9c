// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>

#include "batch.h"
#include "engine_harness.h"
#include "foreign_mode.h"

namespace farandole::testing {
namespace {

TEST(Adasum, ParallelVectorsAreAveragedAndOrthogonalOnesAdded) {
  std::vector<double> a{2.0, 0.0}, b{4.0, 0.0};
  adaptive_sum({a.data(), b.data()}, 2, DType::kF64);
  // a·b = 8, |a|² = 4, |b|² = 16: no part of a, and three quarters of b.
  EXPECT_DOUBLE_EQ(a[0], 3.0);
  a = {2.0, 0.0}, b = {0.0, 5.0};
  adaptive_sum({a.data(), b.data()}, 2, DType::kF64);
  EXPECT_DOUBLE_EQ(a[0], 2.0);
  EXPECT_DOUBLE_EQ(a[1], 5.0);
}

TEST(Adasum, EqualVectorsStayAsTheyAreOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    run_engines(ranks, [](TensorEngine&, Client& client) {
      Client::Options options;
      options.adasum = true;
      const std::vector<float> values{1.0F, -2.0F, 3.0F};
      EXPECT_EQ(client.run("adasum", values, options), values);
    });
  }
}

TEST(Adasum, IgnoresTheThreadsFloatingPointMode) {
  const float least = std::numeric_limits<float>::denorm_min();
  const auto sum = [&](test::Mode mode) {
    std::vector<float> a{3 * least, 0.1F, 1.7F}, b{0.0F, -0.3F, 1.1F}, c{5 * least, 0.7F, 0.9F};
    const test::ForeignMode foreign(mode);
    adaptive_sum({a.data(), b.data(), c.data()}, 3, DType::kF32);
    return std::bit_cast<std::array<std::uint32_t, 3>>(std::array<float, 3>{a[0], a[1], a[2]});
  };
  const auto usual = sum(test::Mode::kUsual);
  EXPECT_GT(usual[0], 0U);
  for (const test::Mode mode : test::kForeignModes) EXPECT_EQ(sum(mode), usual);
}

TEST(Adasum, ZerosAddNothing) {
  std::vector<float> a{0.0F, 0.0F}, b{1.0F, 2.0F};
  adaptive_sum({a.data(), b.data()}, 2, DType::kF32);
  EXPECT_FLOAT_EQ(a[1], 2.0F);
}

}  // namespace
}  // namespace farandole::testing
