// SPDX-License-Identifier: Apache-2.0
// Detection of ranks that wait for each other, in all possible courses of three negotiations.
#include "deadlock_detector.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace farandole::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr DeadlockDetector::Time kNow{std::chrono::hours(1)};

/// Events in and after one negotiation of two ranks.
struct Happening {
  std::array<bool, 2> blocked{};  // when it begins
  std::array<bool, 2> submits{};  // after it has ended
  bool progress = false;          // something else is ready, or joins

  explicit Happening(unsigned bits)
      : blocked{(bits & 1) != 0, (bits & 2) != 0},
        submits{(bits & 4) != 0, (bits & 8) != 0},
        progress((bits & 16) != 0) {}
  static constexpr unsigned kAll = 32;
  bool all_blocked() const { return blocked[0] && blocked[1]; }
};

struct TwoRanks {
  std::array<DeadlockDetector, 2> waits;
  std::vector<bool> joined{false, false};
  const std::vector<std::string> names{"rank 0", "rank 1"};

  /// @returns  the deadlock that each rank finds
  std::array<std::optional<std::string>, 2> negotiation(const Happening& happening) {
    std::vector<Announcements> all(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const bool blocked = happening.blocked[rank] && !joined[rank];
      if (waits[rank].open() && blocked) waits[rank].confirm({"a" + std::to_string(rank)});
      all[rank].waits_for = waits[rank].confirmed();
    }
    std::array<std::optional<std::string>, 2> found;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      waits[rank].receive(happening.all_blocked(), false);
      if (happening.progress) waits[rank].note_progress();
      found[rank] = waits[rank].receive_confirmations(all, joined, names);
      waits[rank].end_negotiation(waits[rank].were_all_blocked() && !joined[rank], kNow);
      if (happening.submits[rank]) waits[rank].reset();
    }
    return found;
  }
};

TEST(DeadlockDetector, AreFoundWhereAllConfirmAndNothingHappens) {
  for (unsigned bits = 0; bits < Happening::kAll * Happening::kAll * Happening::kAll; ++bits) {
    TwoRanks ranks;
    const std::array<Happening, 3> happenings{Happening(bits % Happening::kAll),
                                              Happening(bits / Happening::kAll % Happening::kAll),
                                              Happening(bits / Happening::kAll / Happening::kAll)};
    for (std::size_t i = 0; i < 3; ++i) {
      const Happening& now = happenings[i];
      const bool was_suspected = i > 0 && happenings[i - 1].all_blocked();
      const bool expected = was_suspected && !happenings[i - 1].submits[0] && !happenings[i - 1].submits[1] &&
                            now.all_blocked() && !now.progress;
      const auto found = ranks.negotiation(now);
      ASSERT_EQ(found[0].has_value(), expected) << bits << " " << i;
      ASSERT_EQ(found[0], found[1]) << "in the same words";
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const bool suspects = now.all_blocked() && !now.submits[rank];
        ASSERT_EQ(ranks.waits[rank].next_wakeup(), suspects ? kNow + milliseconds(300) : DeadlockDetector::Time::max());
      }
    }
  }
}

TEST(DeadlockDetector, NoRankWaitsForOneThatHasJoined) {
  TwoRanks ranks;
  ranks.joined[1] = true;
  const Happening blocked(3);
  EXPECT_EQ(ranks.negotiation(blocked)[0], std::nullopt);
  const auto found = ranks.negotiation(blocked);
  ASSERT_TRUE(found[0].has_value());
  EXPECT_THAT(*found[0], HasSubstr("have not submitted: rank 0 for 'a0'; no data was touched"));
  EXPECT_EQ(found[0], found[1]);
  ranks.joined[0] = true;
  EXPECT_EQ(ranks.negotiation(blocked)[0], std::nullopt) << "none waits";
}

TEST(DeadlockDetector, StandstillIsAnnouncedOnce) {
  DeadlockDetector waits;
  waits.announce_idle();
  EXPECT_TRUE(waits.has_unannounced());
  waits.open();
  EXPECT_FALSE(waits.has_unannounced());
  waits.announce_idle();
  waits.reset();
  EXPECT_FALSE(waits.has_unannounced()) << "the rank has gone on";
}

TEST(DeadlockDetector, LongListsOfNamesAreCut) {
  DeadlockDetector waits;
  std::vector<Announcements> all(1);
  for (char name = 'a'; name <= 'f'; ++name) all[0].waits_for.emplace_back(1, name);
  waits.receive(true, false);
  EXPECT_THAT(*waits.receive_confirmations(all, {false}, {"rank 0"}), HasSubstr("for 'a', 'b', 'c', 'd', 'e', …;"));
  waits.receive(true, true);
  EXPECT_EQ(waits.receive_confirmations(all, {false}, {"rank 0"}), std::nullopt);
}

}  // namespace
}  // namespace farandole::testing
