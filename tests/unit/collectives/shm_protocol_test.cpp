// SPDX-License-Identifier: Apache-2.0
// Explores the model of the shared-memory protocol in every interleaving. Models with seeded mistakes must fail: this
// proves that the exploration finds them.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "shm_model.h"

namespace farandole::shm_model {
namespace {

constexpr Kind kA = Kind::kOneShot, kS = Kind::kStaged, kX = Kind::kExchanged, kW = Kind::kWindows;

TEST(ShmProtocol, HoldsInEveryInterleaving) {
  std::size_t states = 0;
  for (const auto& calls : std::vector<std::vector<Kind>>{
           {kA, kA, kA}, {kS, kS, kS}, {kW, kW, kW}, {kA, kS, kA}, {kS, kA, kW}, {kW, kA, kS}}) {
    for (const int ranks : {2, 3}) {
      for (const int lanes : {1, 2}) {
        for (const bool sleeps : {false, true}) {
          // Three ranks, two operations in flight, long ones, sleeping: three of these have too many states.
          const bool is_long = calls[0] != kA || calls[1] != kA;
          const bool is_mixed = calls[0] != calls[1];
          if ((ranks == 3) + (lanes == 2) + is_long + sleeps > (is_mixed && ranks == 2 ? 3 : 2)) continue;
          const Variant variant{ranks, lanes, calls, sleeps, Mistake::kNone};
          const Exploration exploration = explore(variant);
          EXPECT_EQ(exploration.error, "") << describe(variant);
          states += exploration.states;
        }
      }
    }
  }
  EXPECT_GT(states, 100'000U) << "the explorer does not explore";
}

TEST(ShmProtocol, HoldsIfTwoRanksExchangeParts) {
  for (const auto& calls : std::vector<std::vector<Kind>>{{kX}, {kX, kX}, {kX, kA}, {kA, kX}, {kX, kW}}) {
    const Variant variant{2, 1, calls, calls.size() == 1, Mistake::kNone};
    EXPECT_EQ(explore(variant).error, "") << describe(variant);
  }
  const Variant in_flight{2, 2, {kX, kA}, false, Mistake::kNone};
  EXPECT_EQ(explore(in_flight).error, "") << describe(in_flight);
}

void expect_found(const Variant& variant) {
  EXPECT_NE(explore(variant).error, "") << describe(variant);
  Variant right = variant;
  right.mistake = Mistake::kNone;
  EXPECT_EQ(explore(right).error, "") << describe(right);
}

TEST(ShmProtocol, MistakesWithLanesSlotsAndBuffersAreFound) {
  for (const int ranks : {2, 3}) {
    expect_found({ranks, 1, {kA, kA}, false, Mistake::kTakesOccupiedLane});
    expect_found({ranks, 1, {kS, kA}, false, Mistake::kTakesOccupiedLane});
    expect_found({ranks, 1, {kS}, false, Mistake::kReusesSlots});
    expect_found({ranks, 1, {kS}, false, Mistake::kReadsTooEarly});
    expect_found({ranks, 1, {kA}, false, Mistake::kNumberFirst});
    expect_found({ranks, 1, {kW}, false, Mistake::kLeavesTooEarly});
    expect_found({ranks, 1, {kW, kW}, false, Mistake::kStepsLast});
  }
  expect_found({2, 1, {kX}, false, Mistake::kReadsTooEarly});
  expect_found({2, 2, {kA, kA, kA}, false, Mistake::kCountsOnlyNewest});
  expect_found({2, 2, {kA, kA, kA}, false, Mistake::kBeginsOutOfOrder});
}

TEST(ShmProtocol, MistakesWithSleepingAreFound) {
  for (const Mistake mistake :
       {Mistake::kNeverNudges, Mistake::kNudgesFirst, Mistake::kLooksBeforeArming, Mistake::kSeesAfterLooking}) {
    expect_found({2, 1, {kA, kA}, true, mistake});
  }
  for (const Mistake mistake : {Mistake::kNeverNudges, Mistake::kLooksBeforeArming, Mistake::kSeesAfterLooking}) {
    expect_found({2, 1, {kS}, true, mistake});
    expect_found({3, 1, {kA}, true, mistake});
  }
}

}  // namespace
}  // namespace farandole::shm_model
