// SPDX-License-Identifier: Apache-2.0
// Tests of CleanShutdown: one object per process of a job, all in this process, with simulated delivery, so that a test
// can delay each control message.
#include "faults/clean_shutdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// `processes` on hosts of `per_host`, in order, or dealt out in turns.
Topology make_topology(int processes, int per_host, bool interleaved = false) {
  const int hosts = (processes + per_host - 1) / per_host;
  std::vector<ProcessInfo> infos;
  for (int p = 0; p < processes; ++p) {
    infos.push_back({interleaved ? p % hosts : p / per_host, 1, 1000 + p, "host"});
  }
  return Topology(std::move(infos));
}

/// Processes of a job, and the control messages that are on their way between them.
class Fleet {
 public:
  explicit Fleet(const Topology& topology) : inboxes_(static_cast<std::size_t>(topology.process_count())) {
    for (int p = 0; p < topology.process_count(); ++p) {
      processes_.push_back(std::make_unique<CleanShutdown>(topology, p, [this](int to, const ControlMessage& control) {
        inboxes_[static_cast<std::size_t>(to)].push_back(control);
        ++posted_;
      }));
    }
  }
  int size() const { return static_cast<int>(processes_.size()); }
  CleanShutdown& operator[](int process) { return *processes_[static_cast<std::size_t>(process)]; }
  std::size_t posted() const { return posted_; }
  /// The process reads the first message that has come, if any. True: it may end.
  bool move(int process) {
    auto& inbox = inboxes_[static_cast<std::size_t>(process)];
    if (!inbox.empty()) {
      (*this)[process].handle(inbox.front());
      inbox.pop_front();
    }
    return (*this)[process].advance();
  }
  void read_all(int process) {
    while (!inboxes_[static_cast<std::size_t>(process)].empty()) move(process);
    move(process);
  }

 private:
  std::vector<std::unique_ptr<CleanShutdown>> processes_;
  std::vector<std::deque<ControlMessage>> inboxes_;
  std::size_t posted_ = 0;
};

TEST(ShutdownTree, JoinsHostsByTheirFirstProcesses) {
  const Topology topology = make_topology(6, 3, /*interleaved=*/true);  // hosts 0 1 0 1 0 1
  EXPECT_EQ(ShutdownTree::of(topology, 0).parent, std::nullopt);
  EXPECT_THAT(ShutdownTree::of(topology, 0).children, ElementsAre(1, 2, 4));
  EXPECT_EQ(ShutdownTree::of(topology, 1).parent, 0);
  EXPECT_THAT(ShutdownTree::of(topology, 1).children, ElementsAre(3, 5));
  EXPECT_EQ(ShutdownTree::of(topology, 5).parent, 1);
  EXPECT_THAT(ShutdownTree::of(topology, 5).children, IsEmpty());
}

TEST(CleanShutdown, CostsFourMessagesPerProcess) {
  for (const int processes : {1, 2, 3, 8, 64, 500}) {
    for (const int per_host : {1, 4, 64}) {
      Fleet fleet(make_topology(processes, per_host));
      int ended = 0;
      for (int p = 0; p < processes; ++p) fleet[p].begin();
      for (int turn = 0; turn < 10 && ended < processes; ++turn) {
        ended = 0;
        for (int p = 0; p < processes; ++p) {
          fleet.read_all(p);
          ended += fleet.move(p) ? 1 : 0;
        }
      }
      EXPECT_EQ(ended, processes);
      EXPECT_EQ(fleet.posted(), 4U * static_cast<unsigned>(processes - 1));
    }
  }
}

/// In any order of events: no process ends before all processes want to end; all processes end; and no process that has
/// read its messages reports an ended process as lost. Some process reports each process that dies.
TEST(CleanShutdown, KnowsWhichRanksMayHaveEnded) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int processes = 2 + static_cast<int>(random() % 6);
    Fleet fleet(make_topology(processes, 1 + static_cast<int>(random() % 4), random() % 2 == 0));
    std::vector<bool> ended(static_cast<std::size_t>(processes));
    int begun = 0, done = 0;
    for (int event = 0; done < processes; ++event) {
      ASSERT_LT(event, 100'000);
      const int p = static_cast<int>(random() % static_cast<unsigned>(processes));
      if (ended[static_cast<std::size_t>(p)]) continue;
      if (!fleet[p].has_begun() && random() % 8 == 0) {
        fleet[p].begin();
        ++begun;
      }
      if (fleet.move(p)) {
        ASSERT_EQ(begun, processes) << "process " << p << " ends before all want to";
        ended[static_cast<std::size_t>(p)] = true;
        ++done;
        continue;
      }
      fleet.read_all(p);
      for (int other = 0; other < processes; ++other) {
        if (ended[static_cast<std::size_t>(other)]) {
          EXPECT_FALSE(fleet[p].must_be_alive(other) && !fleet.move(p)) << p << " misses " << other;
        }
      }
    }
  }
}

TEST(CleanShutdown, ADeathAtAnyMomentIsSeenByANeighbour) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int processes = 2 + static_cast<int>(random() % 6);
    Fleet fleet(make_topology(processes, 8));
    const int victim = static_cast<int>(random() % static_cast<unsigned>(processes));
    int steps = static_cast<int>(random() % 12);
    for (int p = 0; p < processes; ++p) fleet[p].begin();
    bool victim_ended = false;
    std::vector<bool> ended(static_cast<std::size_t>(processes));
    for (int event = 0; event < 2000; ++event) {
      const int p = static_cast<int>(random() % static_cast<unsigned>(processes));
      if (p == victim && steps-- <= 0) continue;  // it is dead
      ended[static_cast<std::size_t>(p)] = fleet.move(p);
      victim_ended = victim_ended || (p == victim && ended[static_cast<std::size_t>(p)]);
    }
    if (victim_ended) continue;
    int missed = 0, waiting = 0;
    for (int p = 0; p < processes; ++p) {
      if (p == victim || ended[static_cast<std::size_t>(p)]) continue;
      ++waiting;
      missed += fleet[p].must_be_alive(victim) ? 1 : 0;
    }
    EXPECT_TRUE(waiting == 0 || missed > 0) << "process " << victim << " of " << processes;
  }
}

TEST(CleanShutdown, NamesTheRanksItWaitsFor) {
  Fleet fleet(make_topology(3, 3));
  for (int p = 0; p < 2; ++p) fleet[p].begin();
  for (int turn = 0; turn < 3; ++turn) {
    for (int p = 0; p < 2; ++p) fleet.read_all(p);
  }
  EXPECT_THAT(fleet[0].waits_for(), ElementsAre(2));
  EXPECT_THAT(fleet[1].waits_for(), ElementsAre(0));
}

TEST(CleanShutdown, ForeignMessagesChangeNothing) {
  Fleet fleet(make_topology(3, 3));
  fleet[0].begin();
  ControlMessage control;
  control.kind = ControlMessage::Kind::kLeave;
  for (const int sender : {-1, 0, 7}) {
    control.process = sender;
    fleet[0].handle(control);
  }
  control.process = 1;
  control.sequence = 99;
  fleet[0].handle(control);
  EXPECT_FALSE(fleet[0].advance());
  EXPECT_THAT(fleet[0].waits_for(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace farandole
