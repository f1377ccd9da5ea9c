// SPDX-License-Identifier: Apache-2.0
// Detection of ranks that wait for each other in a cycle: which cycles are found, and whether they are certain.
#include "faults/wait_cycles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/sdk/backend.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr Seconds kWarnAfter{10};
constexpr Seconds kUntilCertain = 5 * kWarnAfter;

Topology topology_of_processes(int processes) {
  std::vector<ProcessInfo> infos;
  for (int p = 0; p < processes; ++p) infos.push_back({0, 1, 1000 + p, "host"});
  return Topology(std::move(infos));
}

FlightSubject barrier_subject() {
  return {{}, [](const FlightSubject::Words&) { return std::string("barrier"); }};
}

/// Processes of one rank each, whose messages arrive when the test delivers them.
class WaitingRanks {
 public:
  explicit WaitingRanks(int ranks)
      : topology_(topology_of_processes(ranks)), blocked_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      WaitCycles::Environment here;
      here.blocked = [this](int asked) -> BlockedCalls& { return blocked(asked); };
      here.entered = [this](int asked, std::uint32_t communicator) { return entered_[{asked, communicator}]; };
      here.missing = [this](std::uint32_t communicator, std::uint64_t sequence, const std::vector<int>& members) {
        std::vector<int> missing;
        for (const int member : members) {
          if (entered_[{member, communicator}] < sequence) missing.push_back(member);
        }
        return missing;
      };
      here.post = [this](int to, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe& probe) {
        ++posted;
        messages_.push_back(
            [this, to, communicator, sequence, probe] { circles(to).receive(to, communicator, sequence, probe); });
      };
      here.found = [this](int, const std::string& text, bool is_certain) {
        (is_certain ? certain : possible).push_back(text);
      };
      cycles_.push_back(std::make_unique<WaitCycles>(topology_, rank, kWarnAfter, std::move(here)));
    }
  }
  BlockedCalls& blocked(int rank) { return blocked_[static_cast<std::size_t>(rank)]; }
  WaitCycles& circles(int rank) { return *cycles_[static_cast<std::size_t>(rank)]; }
  /// `rank` sleeps in the first collective of a communicator.
  void wait(int rank, std::uint32_t communicator, std::vector<int> members, Seconds waited = kUntilCertain,
            bool needs_all = true) {
    entered_[{rank, communicator}] = 1;
    const auto& kept = members_.emplace_back(std::move(members));
    const auto& label = labels_.emplace_back(label_prefix + std::to_string(communicator));
    const auto since = Clock::now() - std::chrono::duration_cast<Clock::duration>(waited);
    scopes_.emplace_back(blocked(rank),
                         BlockedCall{communicator, 1, barrier_subject(), &label, &kept, needs_all, since});
  }
  void enter(int rank, std::uint32_t communicator) { entered_[{rank, communicator}] = 1; }
  void deliver() {
    for (; !messages_.empty(); messages_.pop_front()) messages_.front()();
  }

  std::string label_prefix = "communicator ";
  std::vector<std::string> certain, possible;
  int posted = 0;

 private:
  const Topology topology_;
  std::deque<BlockedCalls> blocked_;
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> entered_;
  std::list<std::vector<int>> members_;
  std::list<std::string> labels_;
  std::list<BlockedCalls::Scope> scopes_;
  std::vector<std::unique_ptr<WaitCycles>> cycles_;
  std::deque<std::function<void()>> messages_;
};

TEST(WaitCycles, TwoRanksThatWaitForEachOtherAreCertain) {
  WaitingRanks job(3);
  job.wait(0, 7, {0, 1});
  job.wait(1, 8, {0, 1});
  job.circles(0).search(0);
  job.deliver();
  ASSERT_THAT(job.certain, SizeIs(1));
  EXPECT_THAT(job.certain.front(),
              AllOf(StartsWith("ranks wait for each other in a circle: rank 0 (host host, pid 1000) in communicator 7 "
                               "(barrier), which waits for rank 1 (host host, pid 1001) in communicator 8 (barrier), "
                               "which waits for rank 0; ranks that share")));
}

TEST(WaitCycles, LongCycleAmongOtherWaitsIsFound) {
  constexpr int kRanks = 40;
  WaitingRanks job(kRanks + 1);
  // Each of the others waits for the next, which is in another communicator; the last rank waits for a rank of the
  // circle.
  for (int rank = 0; rank < kRanks; ++rank) {
    job.wait(rank, static_cast<std::uint32_t>(rank), {rank, (rank + 1) % kRanks});
  }
  job.wait(kRanks, kRanks, {3, kRanks});
  job.circles(kRanks).search(kRanks);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty()) << "this rank is not in the circle";
  job.circles(5).search(5);
  job.deliver();
  ASSERT_THAT(job.certain, SizeIs(1));
  EXPECT_THAT(job.certain.front(),
              AllOf(HasSubstr("rank 5 ("), HasSubstr(" more ranks in turn, which waits for rank 5; ")));
  EXPECT_LT(job.certain.front().size(), sizeof ControlMessage::text) << "as peers are told of it";
  EXPECT_LE(job.posted, 2 * kRanks + 2);
}

TEST(WaitCycles, AProbeIsPassedOnOnce) {
  WaitingRanks job(6);
  // All but rank 0 wait for rank 0, which waits for all of them.
  for (int rank = 1; rank < 6; ++rank) job.wait(rank, 7, {0, 1, 2, 3, 4, 5});
  job.wait(0, 8, {0, 1, 2, 3, 4, 5});
  job.circles(3).search(3);
  job.deliver();
  EXPECT_THAT(job.certain, SizeIs(1));
  EXPECT_LE(job.posted, 1 + 5 + 4);
}

TEST(WaitCycles, ARankThatWaitsForAShortTimeOrNotAtAllEndsTheSearch) {
  WaitingRanks job(3);
  job.wait(0, 7, {0, 1});
  job.circles(0).search(0);
  job.deliver();
  job.wait(1, 8, {0, 1}, 0.5 * kWarnAfter);
  job.circles(0).search(0);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  EXPECT_THAT(job.possible, IsEmpty());
}

TEST(WaitCycles, NothingIsFoundWhereARankHasComeMeanwhile) {
  WaitingRanks job(2);
  job.wait(0, 7, {0, 1});
  job.wait(1, 8, {0, 1});
  job.circles(0).search(0);
  job.enter(0, 8);  // by another thread, say, while the probe is on its way
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  EXPECT_THAT(job.possible, IsEmpty());
}

TEST(WaitCycles, ShortCycleNamesAllRanks) {
  WaitingRanks job(12);
  job.label_prefix = "communicator 'tensor parallel, replica group with a long name' ";
  for (int rank = 0; rank < 8; ++rank) job.wait(rank, static_cast<std::uint32_t>(rank), {rank, (rank + 1) % 8});
  job.circles(0).search(0);
  job.deliver();
  ASSERT_THAT(job.certain, SizeIs(1));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(job.certain.front(), HasSubstr("rank " + std::to_string(rank) + " (host host, pid "));
  }
  EXPECT_THAT(job.certain.front(), Not(HasSubstr("more rank")));
}

TEST(WaitCycles, OneRankThatThePathHasNoRoomForIsCounted) {
  WaitingRanks job(3);
  job.wait(0, 0, {0, 1});
  job.wait(1, 1, {1, 2});
  job.label_prefix.assign(WaitProbe::kPathBytes, 'x');
  job.wait(2, 2, {2, 0});
  job.circles(0).search(0);
  job.deliver();
  ASSERT_THAT(job.certain, SizeIs(1));
  EXPECT_THAT(job.certain.front(),
              HasSubstr("(barrier), which waits for 1 more rank in turn, which waits for rank 0; "));
}

TEST(WaitCycles, RecentCycleIsOnlyPossible) {
  WaitingRanks job(2);
  job.wait(0, 7, {0, 1});
  job.wait(1, 8, {0, 1}, 0.9 * kUntilCertain);
  job.circles(0).search(0);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  ASSERT_THAT(job.possible, SizeIs(1));
  EXPECT_THAT(job.possible.front(),
              AllOf(StartsWith("ranks may be waiting for each other in a circle: rank 0 ("),
                    HasSubstr("; a thread that has not used Farandole yet may still end this; ")));
}

TEST(WaitCycles, CycleIsOnlyPossibleIfASecondThreadUsesTheRank) {
  WaitingRanks job(2);
  job.wait(0, 7, {0, 1});
  job.wait(1, 8, {0, 1}, kWarnAfter);
  std::thread([&] { job.blocked(1).note_thread(); }).join();
  job.circles(0).search(0);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  ASSERT_THAT(job.possible, SizeIs(1));
  EXPECT_THAT(job.possible.front(), AllOf(StartsWith("ranks may be waiting for each other in a circle: "),
                                          HasSubstr("; another thread of rank 1 may still end this; ranks that")));
}

TEST(WaitCycles, CycleIsOnlyPossibleIfAnotherThreadWaits) {
  WaitingRanks job(2);
  job.blocked(0).note_thread();  // begins what another thread waits for
  std::thread([&] { job.wait(0, 7, {0, 1}); }).join();
  job.wait(1, 8, {0, 1});
  job.circles(1).search(1);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  EXPECT_THAT(job.possible, SizeIs(1));
}

TEST(WaitCycles, CycleIsOnlyPossibleIfCallsAreNotCompared) {
  WaitingRanks job(2);
  job.wait(0, 7, {0, 1}, kUntilCertain, /*needs_all=*/false);
  job.wait(1, 8, {0, 1});
  job.circles(1).search(1);
  job.deliver();
  EXPECT_THAT(job.certain, IsEmpty());
  ASSERT_THAT(job.possible, SizeIs(1));
  EXPECT_THAT(job.possible.front(), HasSubstr("; rank 0 may still go on, because calls are not compared "));
}

}  // namespace
}  // namespace farandole
