// SPDX-License-Identifier: Apache-2.0
// The cache of hierarchical plans of earlier calls: hits, misses and bound on memory.
#include "messages/prepared_plans.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "messages/hierarchical_call.h"
#include "schedule/recently_used.h"
#include "shm_ranks.h"

namespace farandole {
namespace {

TEST(RecentlyUsed, KeepsAsManyAsFitTheCapacity) {
  RecentlyUsed<int, std::string> kept(10);
  kept.add(1, "one", 4);
  kept.add(2, "two", 6);
  ASSERT_NE(kept.find(1), nullptr);
  kept.add(3, "three", 5);
  EXPECT_EQ(kept.find(2), nullptr) << "it was used less recently than the first one";
  ASSERT_NE(kept.find(1), nullptr);
  EXPECT_EQ(*kept.find(3), "three");
  EXPECT_EQ(kept.used(), 9U);
  kept.add(4, "more than there is room for", 11);
  EXPECT_EQ(*kept.find(4), "more than there is room for");
  EXPECT_EQ(kept.find(3), nullptr);
  EXPECT_EQ(kept.used(), 11U);
}

class PreparedPlansOfTwoHosts : public testing::Test {
 protected:
  static HierarchicalQuery query(std::size_t count) {
    HierarchicalQuery query;
    query.collective = Collective::kAllreduce;
    query.count = count;
    query.carriers = 2;
    return query;
  }
  const std::vector<int> hosts_{0, 0, 1, 1};
  const test::ShmRanks ranks_{4, 1024, hosts_};
  const Hierarchy hierarchy_ = Hierarchy::of(hosts_, 3);
  PreparedPlans plans_{ranks_.group(3), hierarchy_};
};

TEST_F(PreparedPlansOfTwoHosts, AreMadeOncePerQueryAndType) {
  const auto first = plans_.get(query(1000), 4);
  EXPECT_EQ(plans_.get(query(1000), 4), first);
  EXPECT_NE(plans_.get(query(1001), 4), first);
  EXPECT_NE(plans_.get(query(1000), 8), first) << "what is selected across depends on bytes";
  HierarchicalQuery other = query(1000);
  other.slices = 2;
  EXPECT_NE(plans_.get(other, 4), first);
}

TEST_F(PreparedPlansOfTwoHosts, KnowTheRanksAcrossAndHowTheyExchange) {
  const auto prepared = plans_.get(query(1 << 20), 4);
  EXPECT_EQ(prepared->across.members, (std::vector<int>{1, 3}));
  EXPECT_EQ(prepared->across.rank, 1);
  ASSERT_EQ(prepared->selections.size(), prepared->plan.phases.size());
  for (std::size_t i = 0; i < prepared->plan.phases.size(); ++i) {
    const HierarchicalPhase& phase = prepared->plan.phases[i];
    const Algorithm* const algorithm = prepared->selections[i].algorithm;
    if (phase.where == HierarchicalPhase::Where::kInside) {
      EXPECT_EQ(algorithm, nullptr);
    } else {
      EXPECT_EQ(algorithm, select_across(prepared->across, phase.collective, phase.total * 4).algorithm);
    }
  }
}

TEST_F(PreparedPlansOfTwoHosts, TakeNoMoreMemoryThanAllowed) {
  const auto first = plans_.get(query(1), 4);
  const std::size_t each = plans_.kept_bytes();
  for (std::size_t count = 2; count * each < 2 * PreparedPlans::kMaxBytes; ++count) {
    (void)plans_.get(query(count), 4);
    ASSERT_LE(plans_.kept_bytes(), PreparedPlans::kMaxBytes);
  }
  EXPECT_GT(plans_.kept_bytes(), PreparedPlans::kMaxBytes / 2);
  EXPECT_NE(plans_.get(query(1), 4), first) << "it had to go";
  EXPECT_EQ(first->plan.phases.size(), plans_.get(query(1), 4)->plan.phases.size()) << "an operation may still use it";
}

}  // namespace
}  // namespace farandole
