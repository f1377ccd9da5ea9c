// SPDX-License-Identifier: Apache-2.0
// Ranks that join and leave: all possible courses for two ranks over a few negotiations, and long random runs of more
// ranks.
#include "joining.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "negotiator_probe.h"

namespace farandole::testing {
namespace {

using ::testing::HasSubstr;

/// Actions of one rank before and during a negotiation.
struct JoiningWay {
  bool joins = false;            ///< before it
  bool joins_meanwhile = false;  ///< after it has begun
  bool leaves = false;           ///< before it
};
constexpr int kJoiningWays = 5;
JoiningWay way_of(unsigned number) {
  return {number == 1 || number == 2, number == 2 || number == 3, number == 4};
}

bool all_of(const std::vector<bool>& ranks) {
  return std::find(ranks.begin(), ranks.end(), false) == ranks.end();
}
bool any_of(const std::vector<bool>& ranks) {
  return std::find(ranks.begin(), ranks.end(), true) != ranks.end();
}

/// Ranks and their expected states.
class JoiningRanks {
 public:
  explicit JoiningRanks(std::size_t size) : joined_(size), left_(size), wants_(size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(rank, size);
      names_.push_back("rank " + std::to_string(rank));
    }
  }

  void negotiation(const std::vector<JoiningWay>& ways) {
    const std::size_t size = ranks_.size();
    std::vector<bool> joins(size), leaves(size);
    std::vector<Announcements> all(size);
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (ways[rank].joins) join(rank);
      leaves[rank] = ways[rank].leaves && !left_[rank];
      if (ways[rank].leaves) ranks_[rank].leave(Departure::kLeavesJob);
      joins[rank] = wants_[rank];
      EXPECT_EQ(ranks_[rank].has_unannounced(), joins[rank] || leaves[rank]);
      ranks_[rank].announce(all[rank]);
      EXPECT_EQ(all[rank].joins, joins[rank]) << "a join is announced once";
      EXPECT_EQ(all[rank].departs != Departure::kNone, leaves[rank]) << "a departure is announced once";
      wants_[rank] = false;
      if (ways[rank].joins_meanwhile) join(rank);
    }
    const bool was_closing = ranks_.front().is_closing();
    for (Joining& rank : ranks_) {
      EXPECT_EQ(rank.receive_departures(all, names_), any_of(leaves));
      if (rank.departed()) continue;
      EXPECT_EQ(rank.receive_joins(all), any_of(joins));
      if (!was_closing) continue;
      EXPECT_EQ(rank.end_closing(), last_);
    }
    expect_after(joins, leaves, was_closing);
  }

 private:
  void join(std::size_t rank) {
    EXPECT_EQ(ranks_[rank].refuse("join").has_value(), any_of(left_));
    if (any_of(left_)) return;
    ranks_[rank].join();
    wants_[rank] = wants_[rank] || !joined_[rank];
  }
  void expect_after(const std::vector<bool>& joins, const std::vector<bool>& leaves, bool was_closing) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) left_[rank] = left_[rank] || leaves[rank];
    const bool is_over = any_of(left_);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (joins[rank]) last_ = static_cast<int>(rank);
      if (joins[rank] && !is_over) wants_[rank] = false;  // what it has called meanwhile was the same join
      joined_[rank] = (joined_[rank] || joins[rank]) && !is_over && !was_closing;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Joining& own = ranks_[rank];
      EXPECT_EQ(NegotiatorProbe::joins(own), NegotiatorProbe::joins(ranks_.front()));
      EXPECT_EQ(own.joined(), joined_);
      EXPECT_EQ(own.is_closing(), all_of(joined_)) << "in the negotiation after all have joined";
      EXPECT_EQ(own.departed().has_value(), is_over);
      EXPECT_EQ(own.have_all_left(), all_of(left_));
      EXPECT_EQ(own.takes_part(), joined_[rank] || left_[rank] || wants_[rank]);
    }
  }

  std::vector<Joining> ranks_;
  std::vector<std::string> names_;
  // Expected state of each rank.
  std::vector<bool> joined_, left_;
  std::vector<bool> wants_;  // it has called `join`, and has not announced that
  int last_ = -1;
};

void explore_joins(const JoiningRanks& before, int negotiations) {
  for (unsigned number = 0; number < kJoiningWays * kJoiningWays && !::testing::Test::HasFailure(); ++number) {
    JoiningRanks after = before;
    after.negotiation({way_of(number % kJoiningWays), way_of(number / kJoiningWays)});
    if (negotiations > 1) explore_joins(after, negotiations - 1);
  }
}

TEST(Joining, TwoRanksAgreeWhateverTheyDo) {
  explore_joins(JoiningRanks(2), 3);
}

TEST(Joining, SomeRanksAgreeOverManyNegotiations) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    JoiningRanks ranks(1 + random() % 4);
    const unsigned ways = random() % 3 == 0 ? kJoiningWays : kJoiningWays - 1;  // with or without departures
    for (int negotiation = 0; negotiation < 40; ++negotiation) {
      std::vector<JoiningWay> chosen;
      for (int rank = 0; rank < 4; ++rank) chosen.push_back(way_of(random() % 2 == 0 ? 0 : random() % ways));
      ranks.negotiation(chosen);
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
  }
}

TEST(Joining, TheErrorNamesAllThatDepartFirst) {
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  Joining joining(0, 3);
  std::vector<Announcements> all(3);
  all[1].departs = all[2].departs = Departure::kLeavesJob;
  EXPECT_TRUE(joining.receive_departures(all, names));
  ASSERT_TRUE(joining.refuse("join").has_value());
  EXPECT_EQ(joining.refuse("join")->kind, ErrorKind::kPeerLost);
  EXPECT_THAT(joining.refuse("join")->text, HasSubstr("join: rank 1, rank 2 has left the job"));
  EXPECT_THAT(joining.refuse("join")->text,
              HasSubstr("; every rank must make the same calls, and the program of rank 1"));
  all[1].departs = all[2].departs = Departure::kNone;
  all[0].departs = Departure::kSetRemoved;
  EXPECT_TRUE(joining.receive_departures(all, names));
  EXPECT_THAT(joining.departed()->text, HasSubstr("rank 2 has left the job")) << "the first says why";
  EXPECT_TRUE(joining.have_all_left());
}

}  // namespace
}  // namespace farandole::testing
