// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

std::vector<std::uint32_t> order_of(Loader& loader, std::int64_t epoch) {
  loader.start_epoch(epoch);
  std::vector<std::uint32_t> order;
  for (std::int64_t index = 0; index < loader.batches_per_epoch(); ++index) {
    const auto batch = loader.batch(index);
    order.insert(order.end(), batch.begin(), batch.end());
  }
  return order;
}

TEST(Loader, EachSampleComesOncePerEpoch) {
  for (const auto& [samples, batch] : {std::tuple{1, 1}, {10, 3}, {1000, 128}, {128, 128}, {5, 9}}) {
    Loader loader(samples, batch, 3);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::uint32_t> order = order_of(loader, epoch);
      std::sort(order.begin(), order.end());
      std::vector<std::uint32_t> expected(static_cast<std::size_t>(samples));
      std::iota(expected.begin(), expected.end(), 0U);
      EXPECT_EQ(order, expected) << samples << " samples in batches of " << batch;
    }
  }
}

TEST(Loader, TheOrderDependsOnSeedAndEpochOnly) {
  Loader first(500, 64, 1), second(500, 50, 1), other_seed(500, 64, 2);
  const auto order = order_of(first, 4);
  order_of(second, 9);  // what was asked before does not matter
  EXPECT_EQ(order_of(second, 4), order);
  EXPECT_NE(order_of(first, 5), order);
  EXPECT_NE(order_of(other_seed, 4), order);
}

TEST(Loader, ShufflesEvenly) {
  // Counts the positions of sample 0 over 1000 epochs. Expected are 100 in each of 10 positions; 5 standard deviations
  // are about 47.
  Loader loader(10, 10, 11);
  std::vector<int> places(10);
  for (int epoch = 0; epoch < 1000; ++epoch) {
    const auto order = order_of(loader, epoch);
    ++places[static_cast<std::size_t>(std::find(order.begin(), order.end(), 0U) - order.begin())];
  }
  for (const int count : places) EXPECT_NEAR(count, 100, 47);
}

TEST(Loader, KnowsItsLastBatch) {
  EXPECT_EQ(Loader(60000, 128, 1).batches_per_epoch(), 469);
  EXPECT_EQ(Loader(60000, 128, 1).last_batch(), 96);
  EXPECT_EQ(Loader(256, 128, 1).last_batch(), 128);
  Loader loader(300, 128, 1);
  loader.start_epoch(0);
  EXPECT_EQ(loader.batch(2).size(), 44U);
  EXPECT_THROW(loader.batch(3), InvalidArgument);
}

TEST(Loader, CutsAnEpochAsItsOptionsSay) {
  Loader dropping(300, 128, 1, {.drop_last = true});
  EXPECT_EQ(dropping.batches_per_epoch(), 2);
  EXPECT_EQ(dropping.last_batch(), 128);
  Loader even(10, 128, 1, {.shuffle = false, .even_batches = 4});
  even.start_epoch(3);
  std::vector<std::vector<std::uint32_t>> batches;
  for (std::int64_t i = 0; i < 4; ++i) batches.emplace_back(even.batch(i).begin(), even.batch(i).end());
  EXPECT_EQ(batches, (std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 3, 4}, {5, 6}, {7, 8, 9}}));
  EXPECT_THROW(even.batch(4), InvalidArgument);
  EXPECT_THROW(Loader(127, 128, 1, {.drop_last = true}), InvalidArgument);
}

TEST(Loader, RefusesNoSamplesAndEmptyBatches) {
  EXPECT_THROW(Loader(0, 1, 1), InvalidArgument);
  EXPECT_THROW(Loader(10, 0, 1), InvalidArgument);
}

TEST(PartOf, PartsAreContiguousAndEven) {
  for (std::int64_t count : {0, 1, 7, 96, 128}) {
    for (std::int64_t parts : {1, 2, 3, 8, 13}) {
      std::int64_t next = 0;
      for (std::int64_t index = 0; index < parts; ++index) {
        const Range part = part_of(count, parts, index);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.count, count / parts);
        EXPECT_LE(part.count, (count + parts - 1) / parts);
        next += part.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace farandole::trainer
