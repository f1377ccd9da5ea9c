// SPDX-License-Identifier: Apache-2.0
// Queries about missing ranks: which processes are asked, and how the answers are used.
#include "faults/straggler_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::uint32_t kCommunicator = 7;

Topology make_topology(int processes, int replicas = 1) {
  std::vector<ProcessInfo> infos;
  for (int p = 0; p < processes; ++p) infos.push_back({0, replicas, 1000 + p, "host"});
  return Topology(std::move(infos));
}

StragglerQueries make_queries(const Topology& topology, int process, std::uint64_t own_progress = 5) {
  return {topology, process, [own_progress](int, std::uint32_t) { return own_progress; }};
}

std::vector<int> all_of(const Topology& topology) {
  std::vector<int> ranks(static_cast<std::size_t>(topology.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(StragglerQueries, AsksTheAwaitedRanksFirst) {
  const Topology topology = make_topology(4, 2);
  StragglerQueries queries = make_queries(topology, 1);
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{7, 6, 2}, {}), ElementsAre(3)) << "once, and not itself";
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{7}, all_of(topology)), ElementsAre(0, 2));
}

TEST(StragglerQueries, AsksAgainOnlyRanksThatAnswered) {
  const Topology topology = make_topology(3);
  StragglerQueries queries = make_queries(topology, 0);
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{1, 2}, {}), ElementsAre(1, 2));
  queries.answered(2, kCommunicator, 4);
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{1, 2}, {}), ElementsAre(2));
  EXPECT_THAT(queries.ask(kCommunicator, 6, std::vector{1, 2}, {}), IsEmpty()) << "of another collective, too";
  queries.process_has_left(1);
  EXPECT_THAT(queries.ask(kCommunicator, 6, std::vector{1, 2}, {}), ElementsAre(1));
}

TEST(StragglerQueries, FollowsRanksNamedInAnswers) {
  const Topology topology = make_topology(50);
  StragglerQueries queries = make_queries(topology, 0);
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{1}, {}), ElementsAre(1));
  queries.answered(1, kCommunicator, 5);
  queries.named(40, kCommunicator);
  EXPECT_THAT(queries.ask(kCommunicator, 5, std::vector{1}, {}), ElementsAre(1, 40));
  EXPECT_THAT(queries.missing(kCommunicator), ElementsAre(40));
  EXPECT_THAT(queries.describe_missing(kCommunicator, 5, all_of(topology)),
              "rank 40 (host host, pid 1040) does not answer: it computes, is stopped, or is gone; 47 ranks were not "
              "asked");
  EXPECT_THAT(queries.ask(kCommunicator, 6, std::vector{1}, {}), IsEmpty()) << "that was about another collective";
}

TEST(StragglerQueries, ReportsTheKnownStateOfEachRank) {
  const Topology topology = make_topology(6);
  StragglerQueries queries = make_queries(topology, 0);
  queries.ask(kCommunicator, 5, std::vector{1, 2, 3}, {});
  queries.answered(1, kCommunicator, 5);
  queries.answered(2, kCommunicator, 3);
  queries.process_has_left(4);
  const std::string text = queries.describe_missing(kCommunicator, 5, all_of(topology));
  EXPECT_THAT(text, Not(HasSubstr("rank 0")));
  EXPECT_THAT(text, Not(HasSubstr("rank 1 ")));
  EXPECT_THAT(text, HasSubstr("rank 2 (host host, pid 1002) has entered only collective 3"));
  EXPECT_THAT(text, HasSubstr("rank 3 (host host, pid 1003) does not answer"));
  EXPECT_THAT(text, HasSubstr("rank 4 (host host, pid 1004) has left the job"));
  EXPECT_THAT(text, HasSubstr("; 1 ranks were not asked"));
}

TEST(StragglerQueries, NobodyIsAccusedWithoutBeingAsked) {
  const Topology topology = make_topology(9);
  StragglerQueries queries = make_queries(topology, 0);
  queries.ask(kCommunicator, 5, std::vector{1}, {});
  queries.answered(1, kCommunicator, 5);
  EXPECT_EQ(queries.describe_missing(kCommunicator, 5, all_of(topology)),
            "none of those that were asked; 7 ranks were not");
}

TEST(StragglerQueries, AnswersAboutAFormerCommunicatorAreForgotten) {
  const Topology topology = make_topology(2);
  StragglerQueries queries = make_queries(topology, 0, 1);
  queries.ask(kCommunicator, 900, std::vector{1}, {});
  queries.answered(1, kCommunicator, 900);
  queries.ask(kCommunicator, 1, std::vector{1}, {});
  EXPECT_THAT(queries.describe_missing(kCommunicator, 1, all_of(topology)), HasSubstr("rank 1"));
}

TEST(StragglerQueries, DepartureIsRememberedForAWhile) {
  const Topology topology = make_topology(2, 2);
  StragglerQueries queries = make_queries(topology, 0);
  EXPECT_FALSE(queries.has_left(3, Seconds(0)));
  queries.process_has_left(1);
  EXPECT_TRUE(queries.has_left(2, Seconds(0)));
  EXPECT_TRUE(queries.has_left(3, Seconds(0)));
  EXPECT_FALSE(queries.has_left(3, Seconds(1000)));
  queries.set_has_left(3, false);
  EXPECT_FALSE(queries.has_left(3, Seconds(0)));
}

/// All but one wait for that one, in a tree of messages: each only for its child. The last one to be named by everybody
/// is found by hints, and each round of questions costs the job no more than a bounded number of messages per process.
TEST(StragglerQueries, LargeJobFindsTheMissingRankWithFewMessages) {
  constexpr int kProcesses = 300;
  const Topology topology = make_topology(kProcesses);
  std::vector<std::unique_ptr<StragglerQueries>> fleet;
  for (int p = 0; p < kProcesses; ++p) {
    fleet.push_back(
        std::make_unique<StragglerQueries>(topology, p, [p](int, std::uint32_t) { return p == 299 ? 4 : 5; }));
  }
  std::size_t most_messages = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::pair<int, int>> questions;  // from, to
    for (int p = 0; p < kProcesses - 1; ++p) {
      // Rank p receives from p + 2^k; the highest bit in which it differs from 299 comes first.
      const int awaited = std::min(kProcesses - 1, p + (kProcesses - p) / 2 + 1);
      for (const int target : fleet[static_cast<std::size_t>(p)]->ask(kCommunicator, 5, std::vector{awaited}, {})) {
        questions.emplace_back(p, target);
      }
    }
    std::size_t messages = questions.size();
    for (const auto& [from, to] : questions) {
      if (to == kProcesses - 1) continue;  // it computes
      for (const int rank : fleet[static_cast<std::size_t>(to)]->missing(kCommunicator)) {
        fleet[static_cast<std::size_t>(from)]->named(rank, kCommunicator);
        ++messages;
      }
      fleet[static_cast<std::size_t>(from)]->answered(to, kCommunicator, 5);
      ++messages;
    }
    most_messages = std::max(most_messages, messages);
  }
  constexpr std::size_t kPerProcess = StragglerQueries::kMaxAsked * (2 + StragglerQueries::kMaxNamed);
  EXPECT_LE(most_messages, kPerProcess * kProcesses);
  for (int p = 0; p < kProcesses - 1; ++p) {
    EXPECT_THAT(fleet[static_cast<std::size_t>(p)]->describe_missing(kCommunicator, 5, all_of(topology)),
                HasSubstr("rank 299 (host host, pid 1299) does not answer"))
        << "process " << p;
  }
}

TEST(StragglerQueries, NamesTheSurelyMissingBeforeTheSilent) {
  const Topology topology = make_topology(100);
  StragglerQueries queries = make_queries(topology, 0);
  EXPECT_THAT(queries.missing(kCommunicator, 5, all_of(topology)), IsEmpty()) << "nobody was asked";
  // The questions go to ranks 1 to 16.
  ASSERT_THAT(queries.ask(kCommunicator, 5, {}, all_of(topology)), testing::SizeIs(StragglerQueries::kMaxAsked));
  queries.answered(1, kCommunicator, 5);
  queries.answered(12, kCommunicator, 4);
  queries.named(98, kCommunicator);
  queries.answered(99, kCommunicator, 3);
  EXPECT_THAT(queries.missing(kCommunicator, 5, all_of(topology)),
              ElementsAre(12, 99, 98, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15));
  EXPECT_THAT(queries.missing(kCommunicator, 6, std::vector{1, 2, 50}), ElementsAre(1, 2))
      << "who is asked about a collective may be missing in the next";
}

TEST(StragglerQueries, AQueryOfManyRanksAsksAFew) {
  const Topology topology = make_topology(1000);
  StragglerQueries queries = make_queries(topology, 3);
  EXPECT_EQ(queries.ask(kCommunicator, 5, all_of(topology), all_of(topology)).size(), StragglerQueries::kMaxAsked);
  EXPECT_THAT(queries.ask(kCommunicator, 5, all_of(topology), all_of(topology)), IsEmpty());
}

}  // namespace
}  // namespace farandole
