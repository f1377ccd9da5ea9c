// SPDX-License-Identifier: Apache-2.0
// Names that ranks announce one after another are complete as soon as every rank has announced them.
#include "announced_requests.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "negotiator_probe.h"
#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Announcement announcement(const RequestSpec& spec, bool in_step = false) {
  return {std::make_shared<const RequestSpec>(spec), in_step};
}

TEST(AnnouncedRequests, NameIsCompleteOnceAllUnjoinedRanksAnnounceIt) {
  AnnouncedRequests requests(0);
  std::vector<bool> joined{false, false, false};
  EXPECT_FALSE(requests.add(2, announcement(allreduce("a")), joined));
  EXPECT_THAT(requests.missing("a", joined), ElementsAre(0, 1));
  EXPECT_THAT(requests.missing("b", joined), IsEmpty());
  EXPECT_FALSE(requests.add(1, announcement(allreduce("a"), /*in_step=*/true), joined));
  EXPECT_THAT(requests.complete(joined), IsEmpty());
  joined[0] = true;
  EXPECT_THAT(requests.complete(joined), ElementsAre("a"));
  const auto settled = requests.settle("a", {"rank 0", "rank 1", "rank 2"});
  ASSERT_TRUE(settled.has_value());
  EXPECT_EQ(*settled->spec, allreduce("a"));
  EXPECT_TRUE(settled->in_step) << "on one rank it is";
  EXPECT_FALSE(settled->is_own);
  EXPECT_EQ(settled->mismatch, "");
  EXPECT_EQ(requests.settle("a", {}), std::nullopt);
}

TEST(AnnouncedRequests, MismatchNamesSomeRanksOfEachKind) {
  AnnouncedRequests requests(0);
  std::vector<std::string> names;
  const std::vector<bool> joined(9);
  for (std::size_t rank = 0; rank < 9; ++rank) {
    names.push_back("rank " + std::to_string(rank));
    EXPECT_EQ(requests.add(rank, announcement(allreduce("a", rank == 4 ? 2 : 1)), joined), rank == 8);
  }
  const auto settled = requests.settle("a", names);
  ASSERT_TRUE(settled.has_value());
  EXPECT_TRUE(settled->is_own);
  EXPECT_THAT(settled->mismatch, AllOf(HasSubstr("rank 3, rank 5 and 3 more"), Not(HasSubstr("rank 6")),
                                       HasSubstr("rank 4 submitted allreduce 'a' f32[2]"), HasSubstr("no data")));
}

/// Three ranks, each of which stores the announcements of all ranks.
TEST(AnnouncedRequests, AreTheSameOnAllRanksThroughRandomHistories) {
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::array<AnnouncedRequests, 3> ranks{AnnouncedRequests(0), AnnouncedRequests(1), AnnouncedRequests(2)};
    std::map<std::string, std::map<std::size_t, Announcement>> expected;  // by name and rank
    std::vector<bool> joined(3);
    for (int way = 0; way < 60; ++way) {
      const std::string name(1, static_cast<char>('a' + random() % 3));
      const std::size_t rank = random() % 3;
      if (random() % 12 == 0) joined[rank] = !joined[rank];
      if (random() % 10 == 0) {
        const bool of_steps = random() % 2 == 0;
        const auto is_over = [&](std::size_t of, const Announcement& each) {
          return of_steps ? each.in_step : of == rank;
        };
        for (AnnouncedRequests& requests : ranks) requests.forget(is_over);
        for (auto& [each, by_rank] : expected) {
          for (std::size_t of = 0; of < 3; ++of) {
            if (by_rank.count(of) > 0 && is_over(of, by_rank[of])) by_rank.erase(of);
          }
        }
      } else {
        const Announcement each = announcement(allreduce(name, random() % 5 == 0 ? 2 : 1), random() % 2 == 0);
        expected[name][rank] = each;
        for (AnnouncedRequests& requests : ranks) {
          const bool is_complete = requests.add(rank, each, joined);
          EXPECT_EQ(is_complete, requests.missing(name, joined).empty());
        }
      }
      for (const char* each : {"a", "b", "c"}) {
        auto& by_rank = expected[each];
        const bool is_complete = !by_rank.empty() && [&] {
          for (std::size_t of = 0; of < 3; ++of) {
            if (by_rank.count(of) == 0 && !joined[of]) return false;
          }
          return true;
        }();
        for (std::size_t self = 0; self < 3; ++self) {
          const auto complete = ranks[self].complete(joined);
          EXPECT_EQ(std::find(complete.begin(), complete.end(), each) != complete.end(), is_complete);
          if (!is_complete) continue;
          const auto settled = ranks[self].settle(each, names);
          ASSERT_TRUE(settled.has_value());
          const auto holds = [&](auto&& of) { return std::any_of(by_rank.begin(), by_rank.end(), of); };
          EXPECT_EQ(*settled->spec, *by_rank.begin()->second.spec);
          EXPECT_EQ(settled->in_step, holds([](const auto& of) { return of.second.in_step; }));
          EXPECT_EQ(settled->is_own, by_rank.count(self) > 0);
          EXPECT_EQ(!settled->mismatch.empty(),
                    holds([&](const auto& of) { return *of.second.spec != *settled->spec; }));
        }
        if (is_complete) by_rank.clear();
      }
      EXPECT_EQ(NegotiatorProbe::announced(ranks[1]), NegotiatorProbe::announced(ranks[0]));
      EXPECT_EQ(NegotiatorProbe::announced(ranks[2]), NegotiatorProbe::announced(ranks[0]));
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
    for (AnnouncedRequests& requests : ranks) requests.forget([](std::size_t, const Announcement&) { return true; });
    EXPECT_EQ(NegotiatorProbe::announced(ranks[0]), "") << "a name that no rank has announced is not kept";
  }
}

}  // namespace
}  // namespace farandole::testing
