// SPDX-License-Identifier: Apache-2.0
// A job over TCP. Threads of this process stand for the job's processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "sockets/binomial_tree.h"
#include "tcp/tcp_process_group.h"
#include "tcp_slots.h"

namespace farandole::tcp {
namespace {

using test::message_of;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<int> gather(ProcessGroup& group, int mine) {
  std::vector<int> all(static_cast<std::size_t>(group.process_count()), -1);
  group.allgather(&mine, all.data(), sizeof mine);
  return all;
}

class TcpProcessGroupOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Processes, TcpProcessGroupOf, testing::Values(1, 2, 3, 5, 8, 64));

TEST_P(TcpProcessGroupOf, AllTellEachOtherOverTheConnectionsOfATree) {
  const int processes = GetParam();
  const SlotsOfJob slots(processes);
  side_by_side<int>(processes, [&](int process) {
    TcpProcessGroup group(slots[process]);
    for (int times = 0; times < 3; ++times) {
      const std::vector<int> all = gather(group, process + times);
      for (int p = 0; p < processes; ++p) EXPECT_EQ(all[static_cast<std::size_t>(p)], p + times);
    }
    const auto neighbours = sockets::BinomialTree(process, processes).neighbours().size();
    EXPECT_EQ(group.network().connections(), static_cast<int>(neighbours)) << group.network().describe();
    group.leave();
    return 0;
  });
}

TEST(TcpProcessGroup, OtherConnectionsAreMadeWhenTheyAreFirstUsed) {
  const SlotsOfJob slots(4);
  side_by_side<int>(4, [&](int process) {
    TcpProcessGroup group(slots[process]);
    ControlMessage control;
    control.kind = ControlMessage::Kind::kQuery;
    control.process = process;
    // 1 and 2 are no neighbours.
    if (process == 1) group.post(2, control);
    while (process == 2 && !group.poll()) group.rest();
    while (process == 1 && !group.is_flushed()) group.rest();
    gather(group, process);
    EXPECT_EQ(group.network().connections(), process == 1 ? 2 : process == 2 ? 3 : process == 0 ? 2 : 1);
    return 0;
  });
}

TEST(TcpProcessGroup, ControlMessagesArriveInOrderEvenToOneself) {
  const SlotsOfJob slots(2);
  side_by_side<int>(2, [&](int process) {
    TcpProcessGroup group(slots[process]);
    for (std::uint64_t i = 0; i < 50; ++i) {
      ControlMessage control;
      control.kind = ControlMessage::Kind::kQuery;
      control.process = process;
      control.sequence = i;
      for (int target = 0; target < 2; ++target) group.post(target, control);
    }
    std::vector<std::uint64_t> next(2);
    while (next[0] < 50 || next[1] < 50) {
      if (const auto control = group.poll()) {
        EXPECT_EQ(control->sequence, next[static_cast<std::size_t>(control->process)]++);
      }
    }
    gather(group, process);
    return 0;
  });
}

/// Each of the 16 processes is another distance from process 13 in the tree: 0-8-12-13.
TEST(TcpProcessGroup, LeavingProcessIsNamedAcrossTheTree) {
  const SlotsOfJob slots(16);
  const auto errors = side_by_side<std::string>(16, [&](int process) -> std::string {
    TcpProcessGroup group(slots[process]);
    gather(group, process);
    if (process == 13) return "process 13 of 16 has gone";
    return message_of<PeerLost>([&] { gather(group, process); });
  });
  EXPECT_THAT(errors, Each(HasSubstr("process 13 of 16 has gone")));
}

TEST(TcpProcessGroup, StoppedProcessIsNamedToAllAtTheDeadline) {
  SlotsOfJob slots(8);
  slots.timeout = Seconds(1);
  std::latch done(8);
  const auto errors = side_by_side<std::string>(8, [&](int process) -> std::string {
    TcpProcessGroup group(slots[process]);
    // Process 7, three levels below process 0, does not come to the next gathering, and is there all the time.
    std::string error = process == 7 ? "for process 7," : message_of<Timeout>([&] { gather(group, process); });
    done.arrive_and_wait();
    return error;
  });
  EXPECT_THAT(errors, Each(HasSubstr("for process 7,")));
}

TEST(TcpProcessGroup, FaultSeenByOneProcessEndsWaitsOnAll) {
  const SlotsOfJob slots(4);
  const auto errors = side_by_side<std::string>(4, [&](int process) -> std::string {
    TcpProcessGroup group(slots[process]);
    if (process == 1) group.while_waiting([] { throw PeerLost("rank 9 died"); });
    if (process == 3)
      return message_of<PeerLost>([&] {
        // Comes when the others have given up.
        while (group.network().connections() > 0 && !group.is_gone(2)) group.rest();
        gather(group, process);
      });
    return message_of<PeerLost>([&] { gather(group, process); });
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 9 died")));
}

/// Process 0 is told of a fault and ends; process 1, its neighbour, would take process 0 for the one that was lost.
TEST(TcpProcessGroup, ProcessForwardsAFaultBeforeItEnds) {
  const SlotsOfJob slots(3);
  side_by_side<int>(3, [&](int process) {
    TcpProcessGroup group(slots[process]);
    if (process == 2) {
      ControlMessage fault;
      fault.process = 2;
      std::string("rank 9 died").copy(fault.text, sizeof fault.text - 1);
      group.post(0, fault);
      while (!group.is_gone(0)) group.rest();
      return 0;
    }
    std::optional<ControlMessage> told;
    while (!told && !group.is_gone(process == 1 ? 0 : 2)) {
      told = group.poll();
      if (!told) group.rest();
    }
    EXPECT_TRUE(told);
    EXPECT_STREQ(told ? told->text : "", "rank 9 died");
    EXPECT_EQ(told ? told->process : -1, process == 1 ? 0 : 2);
    return 0;
  });
}

TEST(TcpProcessGroup, AProcessIsGoneOnceItsControlMessagesAreRead) {
  const SlotsOfJob slots(2);
  std::latch has_gone(1);
  side_by_side<int>(2, [&](int process) {
    auto group = std::make_unique<TcpProcessGroup>(slots[process]);
    if (process == 1) {
      ControlMessage control;
      control.process = 1;
      group->post(0, control);
      group.reset();
      has_gone.count_down();
      return 0;
    }
    has_gone.wait();
    EXPECT_FALSE(group->is_gone(1));
    EXPECT_TRUE(group->poll());
    EXPECT_TRUE(group->is_gone(1));
    return 0;
  });
}

}  // namespace
}  // namespace farandole::tcp
