#include <gtest/gtest.h>

#include "engine_harness.h"
#include "flight.h"

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

TEST(Adasum, ZerosAddNothing) {
  std::vector<float> a{0.0F, 0.0F}, b{1.0F, 2.0F};
  adaptive_sum({a.data(), b.data()}, 2, DType::kF32);
  EXPECT_FLOAT_EQ(a[1], 2.0F);
}

}  // namespace
}  // namespace farandole::testing
