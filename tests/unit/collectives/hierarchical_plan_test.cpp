// SPDX-License-Identifier: Apache-2.0
// Plans of hierarchical collectives, simulated without running operations: every rank ends with its result, and no more
// data than necessary crosses hosts.
#include "messages/hierarchical_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "operation/call.h"
#include "planned_ranks.h"

namespace farandole {
namespace {

std::string text_of(const HierarchicalQuery& query, const std::vector<int>& hosts) {
  return fmt::format("{} on hosts {}, {} elements or counts {}, root {}, {} carriers, {} slices",
                     name(query.collective), hosts, query.count, query.counts, query.root, query.carriers,
                     query.slices);
}

/// Elements that must cross from one host to another, of a collective that moves blocks.
std::size_t necessary(const HierarchicalQuery& query, const Hierarchy& hierarchy, int from, int to) {
  const auto blocks = [&](int host) {
    std::size_t total = 0;
    for (const int rank : hierarchy.ranks_of(host)) total += query.counts[static_cast<std::size_t>(rank)];
    return total;
  };
  const int root_host = is_rooted(query.collective) ? hierarchy.place_of(query.root).host : -1;
  switch (query.collective) {
    case Collective::kAllgather:
      return blocks(from);
    case Collective::kGather:
      return to == root_host ? blocks(from) : 0;
    case Collective::kScatter:
      return from == root_host ? blocks(to) : 0;
    default:
      return static_cast<std::size_t>(hierarchy.local_size(from)) * blocks(to);
  }
}

void expect_right(const HierarchicalQuery& query, const std::vector<int>& hosts) {
  SCOPED_TRACE(text_of(query, hosts));
  PlannedRanks ranks(query, hosts);
  ASSERT_TRUE(ranks.run()) << "ranks wait for each other";
  ASSERT_EQ(ranks.difference(), "");
  EXPECT_LE(ranks.most_inside_phases(), static_cast<std::size_t>(kMaxInsidePhases));
  const Hierarchy hierarchy = Hierarchy::of(hosts, 0);
  if (!query.counts.empty() && query.collective != Collective::kReduceScatter) {
    for (int from = 0; from < hierarchy.host_count(); ++from) {
      for (int to = 0; to < hierarchy.host_count(); ++to) {
        if (from == to) continue;
        EXPECT_EQ(ranks.crossed(from, to), necessary(query, hierarchy, from, to)) << "from " << from << " to " << to;
      }
    }
  } else {
    EXPECT_EQ(ranks.crossed_by_parts(), query.counts.empty() ? query.count : total_of(query.counts))
        << "one vector per host is what crosses";
  }
}

constexpr Collective kCollectives[] = {Collective::kAllreduce, Collective::kBroadcast,     Collective::kReduce,
                                       Collective::kAllgather, Collective::kReduceScatter, Collective::kGather,
                                       Collective::kScatter,   Collective::kAlltoall,      Collective::kBarrier};

HierarchicalQuery query_of(Collective collective, int size, std::mt19937& random) {
  HierarchicalQuery query;
  query.collective = collective;
  const auto draw = [&](std::size_t most) { return random() % (most + 1); };
  if (is_rooted(collective)) query.root = static_cast<int>(draw(static_cast<std::size_t>(size) - 1));
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      query.count = draw(1) == 0 ? draw(10) : draw(300);
      break;
    case Collective::kBarrier:
      break;
    default: {
      const bool is_even = collective == Collective::kAlltoall || draw(1) == 0;
      const std::size_t each = draw(12);
      for (int rank = 0; rank < size; ++rank) query.counts.push_back(is_even ? each : draw(2) * draw(20));
    }
  }
  query.granularity = std::size_t{1} << draw(5);
  query.slices =
      collective == Collective::kAlltoall || collective == Collective::kBarrier ? 1 : 1 + static_cast<int>(draw(3));
  return query;
}

TEST(HierarchicalPlan, GivesEveryResultAndCrossesHostsOnce) {
  const std::vector<std::vector<int>> layouts{{0, 0, 1, 1},    {0, 0, 0, 1},      {0, 1, 1, 2, 2, 2}, {0, 1, 0, 1},
                                              {1, 0, 0},       {0, 0, 1, 1, 1},   {0, 1, 1, 0, 2, 2}, {0, 0, 1, 0, 1},
                                              {2, 0, 1, 1, 0}, {0, 1, 0, 1, 0, 0}};
  std::mt19937 random(7);
  for (const std::vector<int>& hosts : layouts) {
    for (const Collective collective : kCollectives) {
      for (int carriers = 1; carriers <= Hierarchy::of(hosts, 0).min_local_size(); ++carriers) {
        for (int draw = 0; draw < 12; ++draw) {
          HierarchicalQuery query = query_of(collective, static_cast<int>(hosts.size()), random);
          query.carriers = carriers;
          expect_right(query, hosts);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(HierarchicalPlan, HoldsForRandomHosts) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (int draw = 0; draw < 600; ++draw) {
    const auto count = 2 + random() % 4;
    std::vector<int> hosts(count);
    std::iota(hosts.begin(), hosts.end(), 0);
    for (auto more = 1 + random() % 9; more > 0; --more) hosts.push_back(static_cast<int>(random() % count));
    std::shuffle(hosts.begin(), hosts.end(), random);
    HierarchicalQuery query =
        query_of(kCollectives[random() % std::size(kCollectives)], static_cast<int>(hosts.size()), random);
    const auto least = static_cast<unsigned>(Hierarchy::of(hosts, 0).min_local_size());
    query.carriers = 1 + static_cast<int>(random() % least);
    expect_right(query, hosts);
    if (HasFailure()) return;
  }
}

/// Long vectors go by connections of their own.
TEST(HierarchicalPlan, AlltoallReportsTheBytesBetweenHosts) {
  const auto total_across = [](const std::vector<int>& hosts, int rank) {
    HierarchicalQuery query;
    query.collective = Collective::kAlltoall;
    query.counts.assign(hosts.size(), 1000);
    query.carriers = Hierarchy::of(hosts, rank).min_local_size();
    for (const HierarchicalPhase& phase : plan_hierarchical(query, Hierarchy::of(hosts, rank)).phases) {
      if (phase.where == HierarchicalPhase::Where::kAcross) return phase.total;
    }
    return std::size_t{0};
  };
  EXPECT_EQ(total_across({0, 0, 1, 1}, 1), 4000U) << "for two ranks of each host, from two";
  EXPECT_EQ(total_across({0, 0, 0, 1}, 0), 8000U) << "a leader has 12000, the other one 4000";
}

TEST(HierarchicalPlan, CarriersOfTheirOwnBlocksDoNotGather) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 3, 3, 3};
  query.carriers = 2;
  // Round-robin: the carriers' blocks are already in the order of the output.
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 1));
  ASSERT_EQ(plan.phases.size(), 2U);
  EXPECT_EQ(plan.across, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan.phases[0].input, (PlanPlace{PlaceMemory::kInput, 0}));
  EXPECT_EQ(plan.phases[1].output, (PlanPlace{PlaceMemory::kOutput, 0}));
  EXPECT_TRUE(plan.phases[1].results.empty());
}

TEST(HierarchicalPlan, BlocksInOutputOrderAreReceivedInPlace) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 4, 0, 5};
  query.carriers = 2;
  const HierarchicalPlan first = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 1));
  EXPECT_EQ(first.scratch_count, 0U);
  EXPECT_EQ(first.phases[0].output, (PlanPlace{PlaceMemory::kOutput, 0}));
  const HierarchicalPlan second = plan_hierarchical(query, Hierarchy::of({0, 1, 0, 1}, 2));
  EXPECT_EQ(second.scratch_count, 0U);
  EXPECT_EQ(second.phases[0].output, (PlanPlace{PlaceMemory::kOutput, 7}));
  EXPECT_EQ(second.phases[1].input, (PlanPlace{PlaceMemory::kOutput, 7}));
  // The output cannot serve as scratch memory if the carriers' blocks lie in another order.
  query.counts = {3, 4, 1, 5};
  EXPECT_EQ(plan_hierarchical(query, Hierarchy::of({0, 1, 1, 0}, 0)).phases[0].output.memory, PlaceMemory::kScratch);
}

TEST(HierarchicalPlan, BlocksOfThisHostDoNotWaitForOtherHosts) {
  HierarchicalQuery query;
  query.collective = Collective::kAllgather;
  query.counts = {3, 3, 3, 3};
  query.carriers = 2;
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, 2));
  ASSERT_EQ(plan.phases.size(), 3U);
  EXPECT_EQ(plan.scratch_count, 6U) << "what comes across, and no more";
  int free = 0;
  for (const HierarchicalPhase& phase : plan.phases) {
    EXPECT_TRUE(phase.before.empty() && phase.results.empty()) << "nothing is copied beside the phases";
    if (phase.where == HierarchicalPhase::Where::kAcross || phase.after >= 0) continue;
    ++free;
    EXPECT_EQ(phase.output, (PlanPlace{PlaceMemory::kOutput, 6}));
  }
  EXPECT_EQ(free, 1);
}

TEST(HierarchicalPlan, RootSendsAcrossBeforeItsHostHasTheVector) {
  HierarchicalQuery query;
  query.collective = Collective::kBroadcast;
  query.root = 2;
  query.count = 80;
  query.carriers = 2;
  for (int rank = 0; rank < 4; ++rank) {
    const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, rank));
    for (const HierarchicalPhase& phase : plan.phases) {
      if (phase.where == HierarchicalPhase::Where::kInside) continue;
      EXPECT_EQ(phase.after, rank == 3 ? 0 : -1) << rank;
    }
  }
}

TEST(HierarchicalPlan, ASliceIsAcrossWhileTheNextIsInside) {
  HierarchicalQuery query;
  query.collective = Collective::kAllreduce;
  query.count = 80;
  query.carriers = 2;
  query.slices = 4;
  const HierarchicalPlan plan = plan_hierarchical(query, Hierarchy::of({0, 0, 1, 1}, 0));
  int inside = 0;  // phases that begin before the first slice's part across must be complete
  for (const HierarchicalPhase& phase : plan.phases) {
    if (phase.where == HierarchicalPhase::Where::kAcross) continue;
    if (phase.collective == Collective::kAllgather) break;
    ++inside;
  }
  EXPECT_EQ(inside, 2);
}

}  // namespace
}  // namespace farandole
