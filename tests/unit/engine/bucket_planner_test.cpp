// SPDX-License-Identifier: Apache-2.0
// The grouping of requests into buckets, on ranks that submit them in different orders and at different times.
#include "bucket_planner.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "negotiator_probe.h"
#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr milliseconds kBucketWaits{25};
constexpr BucketPlanner::Limits kFusion{1024, 512};

/// Planners of ranks that share a table of slots, with each rank's pending and released requests.
class PlannedRanks {
 public:
  PlannedRanks(std::size_t size, const std::vector<RequestSpec>& specs) : ranks_(size), slots_(1 << 16) {
    for (const RequestSpec& spec : specs) slots_.add(std::make_shared<const RequestSpec>(spec), false, 1);
    for (Rank& rank : ranks_) rank.planner.resize(specs.size());
  }

  bool has(std::size_t rank, int slot) const { return ranks_[rank].has.count(slot) > 0; }
  void add(std::size_t rank, int slot, bool at_once = false) {
    if (!ranks_[rank].has.insert(slot).second) return;
    ranks_[rank].planner.add(slot, at_once, now_);
    take_released(ranks_[rank]);
  }
  void add_all(std::size_t rank) {
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) add(rank, slot);
  }
  /// The request ends in another way than by an arrangement.
  void remove(std::size_t rank, int slot) {
    ranks_[rank].planner.remove(slot);
    ranks_[rank].has.erase(slot);
    ranks_[rank].released.erase(slot);
  }
  /// Gives the slot to another request. Ranks announce their pending requests of the old slot by name.
  void replace(int slot, const RequestSpec& spec) {
    for (Rank& rank : ranks_) {
      rank.planner.forget(slot);
      take_released(rank);
      rank.has.erase(slot);
      rank.released.erase(slot);
    }
    slots_.retire(slot);
    EXPECT_EQ(slots_.add(std::make_shared<const RequestSpec>(spec), false, 1), slot);
    check();
  }
  void pass(milliseconds time) { now_ += time; }

  /// @returns  the buckets done, as names
  std::vector<std::vector<std::string>> negotiation() {
    std::vector<int> ready;
    for (Rank& rank : ranks_) {
      rank.planner.release_due(now_);
      take_released(rank);
      EXPECT_GT(rank.planner.next_release(), now_);
    }
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
      if (std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.released.count(slot) > 0; })) {
        ready.push_back(slot);
      }
    }
    std::vector<BucketPlanner::Arrangement> arrangements;
    for (Rank& rank : ranks_) {
      arrangements.push_back(rank.planner.arrange(ready, slots_));
      for (const int slot : ready) {
        rank.has.erase(slot);
        rank.released.erase(slot);
      }
      take_released(rank);
      EXPECT_EQ(arrangements.back().buckets, arrangements.front().buckets);
      EXPECT_EQ(arrangements.back().broken, arrangements.front().broken);
    }
    broken += arrangements.front().broken;
    check();
    return check_buckets(arrangements.front().buckets, ready);
  }

  /// All ranks come to all that they have not submitted: nothing may be left over.
  void check_that_all_is_done() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) add_all(rank);
    pass(kBucketWaits);
    negotiation();
    for (const Rank& rank : ranks_) {
      EXPECT_THAT(rank.has, IsEmpty());
      EXPECT_FALSE(rank.planner.holds_any());
    }
  }

  std::size_t broken = 0;

 private:
  struct Rank {
    BucketPlanner planner{kFusion};
    std::set<int> has, released;
  };

  static void take_released(Rank& rank) {
    for (const int slot : rank.planner.released()) {
      EXPECT_EQ(rank.has.count(slot), 1U) << "the rank does not have slot " << slot;
      EXPECT_TRUE(rank.released.insert(slot).second) << "slot " << slot << " is released again";
    }
  }
  void check() const {
    const std::string plan = NegotiatorProbe::plan(ranks_.front().planner);
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(NegotiatorProbe::plan(rank.planner), plan);
      EXPECT_EQ(NegotiatorProbe::contradiction(rank.planner), "");
      EXPECT_EQ(rank.planner.holds_any(), rank.has.size() > rank.released.size());
    }
  }
  std::vector<std::vector<std::string>> check_buckets(const std::vector<std::vector<int>>& buckets,
                                                      const std::vector<int>& ready) const {
    std::vector<std::vector<std::string>> names;
    std::vector<int> done;
    for (const std::vector<int>& bucket : buckets) {
      names.emplace_back();
      std::size_t bytes = 0;
      const RequestSpec& first = *slots_[bucket.front()].spec;
      for (const int slot : bucket) {
        const RequestSpec& spec = *slots_[slot].spec;
        done.push_back(slot);
        names.back().push_back(spec.name);
        bytes += spec.size_in_bytes();
        if (bucket.size() == 1) continue;
        EXPECT_TRUE(spec.kind == RequestKind::kAllreduce && !spec.adasum);
        EXPECT_TRUE(spec.op == first.op && spec.prescale == first.prescale && spec.postscale == first.postscale);
        EXPECT_LT(spec.size_in_bytes(), kFusion.min_unfused_bytes);
      }
      EXPECT_LE(bucket.size() == 1 ? 0 : bytes, kFusion.fusion_bytes);
    }
    std::sort(done.begin(), done.end());
    EXPECT_EQ(done, ready) << "each comes out once";
    return names;
  }

  std::vector<Rank> ranks_;
  SlotTable slots_;
  BucketPlanner::Time now_{std::chrono::hours(1)};
};

TEST(BucketPlanner, GroupsCompatibleRequestsUpToTheLimit) {
  RequestSpec max = allreduce("max"), scaled = allreduce("scaled"), adasum = allreduce("adasum");
  max.op = ReduceOp::kMax;
  scaled.postscale = 0.5;
  adasum.adasum = true;
  PlannedRanks ranks(2, {allreduce("a", 100), max, allreduce("b", 100), scaled, adasum, allreduce("c", 100),
                         allgather("g"), allreduce("large", 128), allreduce("d", 1)});
  for (const std::size_t rank : {0, 1}) ranks.add_all(rank);
  EXPECT_THAT(ranks.negotiation(),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("max"), ElementsAre("scaled"), ElementsAre("adasum"),
                          ElementsAre("c", "d"), ElementsAre("g"), ElementsAre("large")));
}

TEST(BucketPlanner, NamesByOrderAreFusedButDoNotStayTogether) {
  RequestSpec first = allreduce("first"), second = allreduce("second");
  first.by_order = second.by_order = true;
  PlannedRanks ranks(1, {first, second});
  ranks.add_all(0);
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("first", "second")));
  ranks.add(0, 0);
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("first"))) << "it waits for nothing";
  EXPECT_EQ(ranks.broken, 0U);
}

TEST(BucketPlanner, BucketIsHeldUntilItIsCompleteOrLateOrWanted) {
  PlannedRanks ranks(1, {allreduce("a"), allreduce("b")});
  ranks.add_all(0);
  ranks.negotiation();
  ranks.add(0, 1);
  EXPECT_THAT(ranks.negotiation(), IsEmpty());
  ranks.add(0, 0);
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a", "b")));
  ranks.add(0, 1);
  ranks.pass(kBucketWaits - milliseconds(1));
  EXPECT_THAT(ranks.negotiation(), IsEmpty());
  ranks.pass(milliseconds(1));
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("b")));
  ranks.add_all(0);
  ranks.negotiation();
  ranks.add(0, 0, /*at_once=*/true);
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a")));
  EXPECT_EQ(ranks.broken, 2U);
}

TEST(BucketPlanner, EachRequestThatComesToABucketGivesTheRestMoreTime) {
  PlannedRanks ranks(1, {allreduce("a"), allreduce("b"), allreduce("c")});
  ranks.add_all(0);
  ranks.negotiation();
  ranks.add(0, 2);
  ranks.pass(kBucketWaits - milliseconds(1));
  ranks.add(0, 0);
  ranks.pass(kBucketWaits - milliseconds(1));
  EXPECT_THAT(ranks.negotiation(), IsEmpty());
  ranks.pass(milliseconds(1));
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a", "c")));
}

TEST(BucketPlanner, AfterThreeBreaksABucketIsNoLongerHeld) {
  PlannedRanks ranks(1, {allreduce("a"), allreduce("b")});
  for (std::size_t times = 0; times < 4; ++times) {
    EXPECT_EQ(ranks.broken, std::min<std::size_t>(times, 3));
    ranks.add_all(0);
    EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a", "b")));
    ranks.add(0, 0);
    if (times < 3) ranks.pass(kBucketWaits);
    EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a")));
  }
  EXPECT_EQ(ranks.broken, 3U);
}

/// Two ranks that submit random requests in random order.
void explore_plans(const PlannedRanks& before, int depth) {
  if (depth == 0) {
    PlannedRanks last = before;
    return last.check_that_all_is_done();
  }
  const auto explore_with = [&](const std::function<void(PlannedRanks&)>& way) {
    if (::testing::Test::HasFailure()) return;
    PlannedRanks after = before;
    way(after);
    explore_plans(after, depth - 1);
  };
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (int slot = 0; slot < 3; ++slot) {
      if (!before.has(rank, slot)) explore_with([&](PlannedRanks& ranks) { ranks.add(rank, slot); });
    }
  }
  explore_with([](PlannedRanks& ranks) { ranks.negotiation(); });
  explore_with([](PlannedRanks& ranks) { ranks.pass(kBucketWaits); });
}

TEST(BucketPlanner, TwoRanksArrangeAlikeInAnyOrder) {
  PlannedRanks ranks(2, {allreduce("a"), allreduce("b"), allreduce("c")});
  for (const std::size_t rank : {0, 1}) ranks.add_all(rank);
  EXPECT_THAT(ranks.negotiation(), ElementsAre(ElementsAre("a", "b", "c")));
  explore_plans(ranks, 5);
}

RequestSpec random_spec(const std::string& name, std::mt19937& random) {
  RequestSpec spec = random() % 8 == 0 ? allgather(name) : allreduce(name, 1 + static_cast<int>(random() % 150));
  if (random() % 4 == 0) spec.op = ReduceOp::kMax;
  if (random() % 6 == 0) spec.prescale = 0.5;
  if (random() % 8 == 0) spec.by_order = true;
  return spec;
}

TEST(BucketPlanner, SomeRanksArrangeAlikeWhateverComes) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<RequestSpec> specs;
    for (int i = 0; i < 9; ++i) specs.push_back(random_spec("t" + std::to_string(i), random));
    const std::size_t size = 1 + random() % 4;
    PlannedRanks ranks(size, specs);
    for (int way = 0; way < 200; ++way) {
      const std::size_t rank = random() % size;
      const int slot = static_cast<int>(random() % specs.size());
      const unsigned what = random() % 40;
      if (what < 26) ranks.add(rank, slot, random() % 8 == 0);
      if (what == 26) ranks.remove(rank, slot);
      if (what == 27) ranks.replace(slot, random_spec("t" + std::to_string(slot), random));
      if (what >= 28) ranks.pass(milliseconds(random() % 12));
      if (what >= 34) ranks.negotiation();
    }
    ranks.check_that_all_is_done();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace farandole::testing
