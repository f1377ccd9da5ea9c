// SPDX-License-Identifier: Apache-2.0
// Layouts, the schedule cache and selection: the steps between a schedule and a running collective.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "farandole/core/error.h"
#include "foreign_mode.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "selection/selection.h"

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Layout, CutsNearlyEqualPartsOnCacheLines) {
  EXPECT_THAT(balanced_offsets(100, 2, 1, 16), ElementsAre(0, 64, 100));
  EXPECT_THAT(balanced_offsets(10, 4, 1, 1), ElementsAre(0, 3, 6, 9, 10));
  EXPECT_THAT(balanced_offsets(0, 3, 1, 16), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(balanced_offsets(20, 4, 1, 16), ElementsAre(0, 16, 20, 20, 20));
}

TEST(Layout, CutsChunksIntoSegments) {
  EXPECT_THAT(offsets_of(std::vector<std::size_t>{5, 0, 2}, 2, 1), ElementsAre(0, 3, 5, 5, 5, 6, 7));
}

TEST(Layout, CoversEverythingInOrderForManyShapes) {
  for (std::size_t count : {0, 1, 7, 64, 1000, 4097}) {
    for (int chunks : {1, 2, 3, 8}) {
      for (int segments : {1, 2, 5}) {
        const Offsets offsets = balanced_offsets(count, chunks, segments, 16);
        ASSERT_EQ(offsets.size(), static_cast<std::size_t>(chunks * segments + 1));
        EXPECT_EQ(offsets.front(), 0U);
        EXPECT_EQ(offsets.back(), count);
        EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
      }
    }
  }
}

TEST(ScheduleCache, KeepsTheMostRecentlyUsed) {
  ScheduleCache cache(2);
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  const auto first = cache.get(ring, {0, 4, 0}, 1);
  const auto second = cache.get(ring, {1, 4, 0}, 1);
  EXPECT_EQ(cache.get(ring, {0, 4, 0}, 1), first);
  const auto third = cache.get(ring, {2, 4, 0}, 1);
  EXPECT_EQ(cache.get(ring, {0, 4, 0}, 1), first) << "it was used more recently than the second";
  EXPECT_NE(cache.get(ring, {1, 4, 0}, 1), second) << "it had to go";
  EXPECT_NE(cache.get(ring, {0, 4, 0}, 2), first) << "segments are part of the key";
}

TEST(PreparedSchedule, EveryStepHasAsManyWaitsAsEventsReleaseIt) {
  for (const Algorithm& algorithm : algorithms()) {
    const PreparedSchedule prepared(algorithm.make({1, 4, 0}, 1));
    std::vector<int> events(prepared.waits.size(), 0);
    for (const auto& next : prepared.on_complete) {
      for (const int step : next) ++events[static_cast<std::size_t>(step)];
    }
    for (const int step : prepared.on_start) {
      if (step >= 0) ++events[static_cast<std::size_t>(step)];
    }
    EXPECT_EQ(events, prepared.waits) << algorithm.name;
  }
}

SelectionQuery query(std::size_t bytes, int size) {
  return {Collective::kAllreduce, bytes, size, LinkCost{20.0, 1e-3}, false, false, {}, 0};
}

TEST(Selection, ShortVectorsTakeFewRoundsLongVectorsFewBytes) {
  const Settings settings;
  EXPECT_EQ(candidates(query(4, 16), settings).front().algorithm->name, "recursive_doubling");
  const Selection large = select(query(256 << 20, 16), settings);
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  EXPECT_LT(predict_us(*large.algorithm, large.segments, query(256 << 20, 16)),
            0.6 * predict_us(doubling, 1, query(256 << 20, 16)));
}

TEST(Selection, CallerOverridesSettingAndSettingTheModel) {
  Settings settings;
  settings.collectives.allreduce = "binomial_tree";
  EXPECT_EQ(select(query(4, 16), settings).name(), "binomial_tree");
  SelectionQuery asked = query(4, 16);
  asked.forced = "circulant";
  EXPECT_EQ(select(asked, settings).name(), "circulant");
  asked.forced = "vendor";
  EXPECT_EQ(select(asked, settings).name(), "vendor");
}

TEST(Selection, SharedMemoryNeedsPeersUnlessThereIsOneRank) {
  Settings settings;
  settings.collectives.allreduce = "shared_memory";
  EXPECT_THROW(select(query(4, 2), settings), InvalidArgument);
  EXPECT_NE(select(query(4, 1), settings).name(), "shared_memory");
  settings.collectives.allreduce = "hierarchical";
  EXPECT_NE(select(query(4, 1), settings).algorithm, nullptr);
  settings.collectives.allreduce = "shared_memory";
  SelectionQuery asked = query(4, 2);
  asked.shares_memory = true;
  EXPECT_EQ(select(asked, settings).name(), "shared_memory");
}

TEST(Selection, SettingForTheOtherKindOfMemoryIsSkipped) {
  Settings settings;
  settings.collectives.broadcast = "vendor";
  SelectionQuery asked = query(4, 2);
  asked.collective = Collective::kBroadcast;
  EXPECT_NE(select(asked, settings).name(), "vendor");
  settings.collectives.allreduce = "shared_memory";
  asked = query(4, 2);
  asked.memory = MemoryKind::kCuda;
  EXPECT_EQ(select(asked, settings).name(), "vendor");
  asked.vendor_agrees = false;
  EXPECT_NE(select(asked, settings).algorithm, nullptr);
  asked.forced = "shared_memory";
  EXPECT_THROW(select(asked, settings), InvalidArgument);
}

TEST(Selection, JobWideSettingIsSkippedIfAPartCannotFollow) {
  Settings settings;
  for (const auto* const impossible : {"hierarchical", "shared_memory", "halving_doubling"}) {
    settings.collectives.allreduce = impossible;
    SelectionQuery asked = query(4, 3);
    EXPECT_THROW(select(asked, settings), InvalidArgument) << impossible << ": all ranks of the job";
    asked.is_part_of_job = true;
    EXPECT_NE(select(asked, settings).name(), impossible);
    asked.forced = impossible;
    EXPECT_THROW(select(asked, settings), InvalidArgument) << impossible << ": by the caller";
  }
  settings.collectives.allreduce = "double_tree";
  SelectionQuery asked = query(4, 3);
  asked.is_part_of_job = true;
  EXPECT_EQ(select(asked, settings).name(), "double_tree") << "which works for them";
}

TEST(Selection, CandidatesAreSortedAndSupportTheSize) {
  const auto found = candidates(query(1 << 20, 6), Settings());
  ASSERT_GE(found.size(), 4U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].algorithm->supports(6));
    if (i > 0) {
      EXPECT_LE(found[i - 1].predicted_us, found[i].predicted_us);
    }
  }
}

TEST(Selection, RanksSelectAlikeInEveryFloatMode) {
  for (const test::Mode mode : test::kForeignModes) {
    for (std::size_t bytes = 1; bytes < 1 << 24; bytes = bytes * 5 / 3 + 1) {
      const auto usual = candidates(query(bytes, 8), Settings());
      const test::ForeignMode foreign(mode);
      const auto found = candidates(query(bytes, 8), Settings());
      for (std::size_t i = 0; i < usual.size(); ++i) {
        ASSERT_EQ(found[i].predicted_us, usual[i].predicted_us) << bytes << " bytes, " << usual[i].algorithm->name;
        ASSERT_EQ(found[i].algorithm, usual[i].algorithm) << bytes;
      }
    }
  }
}

TEST(Selection, EveryCollectiveHasAnAlgorithmForEverySize) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (int size : {1, 2, 3, 6, 17}) {
      const SelectionQuery asked{static_cast<Collective>(c), 1000, size, {}, false, false, {}, 0};
      EXPECT_FALSE(candidates(asked, Settings()).empty()) << name(static_cast<Collective>(c)) << ", size " << size;
    }
  }
}

TEST(Selection, RefusesUnknownOrUnsuitableAlgorithms) {
  SelectionQuery asked = query(1000, 6);
  asked.forced = "halving_doubling";
  EXPECT_THROW(select(asked, Settings()), InvalidArgument);
  asked.forced = "rign";
  try {
    select(asked, Settings());
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("ring"));
  }
}

}  // namespace
}  // namespace farandole
