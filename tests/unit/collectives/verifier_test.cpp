// SPDX-License-Identifier: Apache-2.0
// The verifier on small schedules, written by hand, each with one kind of mistake.
#include "farandole/collectives/verifier.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace farandole {
namespace {

/// Two ranks' schedules, each from a function of the builder.
template <typename First, typename Second>
std::vector<Schedule> two_ranks(int chunks, const First& first, const Second& second) {
  ScheduleBuilder zero({0, 2, 0}, chunks, 1);
  ScheduleBuilder one({1, 2, 0}, chunks, 1);
  first(zero);
  second(one);
  std::vector<Schedule> schedules;
  schedules.push_back(std::move(zero).build());
  schedules.push_back(std::move(one).build());
  return schedules;
}

void expect_fault(const Verdict& verdict, const std::string& text) {
  EXPECT_FALSE(verdict.correct);
  EXPECT_NE(verdict.fault.find(text), std::string::npos) << "fault: " << verdict.fault << "\nexpected: " << text;
}

TEST(VerifierTest, RefusesToReceiveIntoMemoryBeingSent) {
  const auto exchange = [](int peer) {
    return [peer](ScheduleBuilder& builder) {
      builder.send(peer, {0, 0});
      builder.recv_reduce(peer, {0, 0});
      builder.finish({0, 0}, 1);
    };
  };
  const Verdict verdict = verify(Collective::kAllreduce, two_ranks(1, exchange(1), exchange(0)));
  expect_fault(verdict, "deadlock of 2 ranks: rank 0 in step 0 (send to rank 1, round 0, chunk 0); rank 1");
}

TEST(VerifierTest, AcceptsExchangeThroughScratch) {
  const auto exchange = [](int peer) {
    return [peer](ScheduleBuilder& builder) {
      builder.send(peer, {0, 0});
      builder.recv_scratch(peer, 0, {0, 0}, 1);
      builder.reduce_scratch(0, {0, 0}, 1);
      builder.finish({0, 0}, 1);
    };
  };
  const Verdict verdict = verify(Collective::kAllreduce, two_ranks(1, exchange(1), exchange(0)));
  EXPECT_TRUE(verdict.correct) << verdict.fault;
  EXPECT_EQ(verdict.rounds, 1);
  EXPECT_EQ(verdict.messages, 2);
  EXPECT_EQ(verdict.pieces_sent, 2);
  EXPECT_EQ(verdict.max_dependencies, 2);
}

TEST(VerifierTest, RefusesContributionsCountedTwice) {
  const Verdict verdict = verify(Collective::kReduce, two_ranks(
                                                          1,
                                                          [](ScheduleBuilder& builder) {
                                                            builder.recv_reduce(1, {0, 0});
                                                            builder.round(1);
                                                            builder.recv_reduce(1, {0, 0});
                                                            builder.finish({0, 0}, 1);
                                                          },
                                                          [](ScheduleBuilder& builder) {
                                                            builder.send(0, {0, 0});
                                                            builder.round(1);
                                                            builder.send(0, {0, 0});
                                                          }));
  expect_fault(verdict, "rank 0, step 1 (recv_reduce from rank 1, round 1, chunk 0): counts rank 1 twice");
}

TEST(VerifierTest, RefusesReadingInputThatTheRankDoesNotHave) {
  const Verdict verdict = verify(Collective::kBroadcast, two_ranks(
                                                             1,
                                                             [](ScheduleBuilder& builder) {
                                                               builder.recv(1, {0, 0});
                                                             },
                                                             [](ScheduleBuilder& builder) {
                                                               builder.send(0, {0, 0});
                                                             }));
  expect_fault(verdict, "rank 1, step 0 (send to rank 0, round 0, chunk 0): reads chunk 0 of the input");
}

TEST(VerifierTest, RefusesUnwrittenScratch) {
  const auto nothing = [](ScheduleBuilder&) {};
  const Verdict verdict = verify(Collective::kBarrier, two_ranks(
                                                           1,
                                                           [](ScheduleBuilder& builder) {
                                                             builder.reduce_scratch(0, {0, 0}, 1);
                                                           },
                                                           nothing));
  expect_fault(verdict, "rank 0, step 0 (reduce, round 0, chunk 0): reads chunk 0, which nothing has written");
}

TEST(VerifierTest, RefusesMissingContributions) {
  const auto finish = [](ScheduleBuilder& builder) { builder.finish({0, 0}, 1); };
  expect_fault(verify(Collective::kAllreduce, two_ranks(1, finish, finish)), "its value is not fully reduced");
  const auto nothing = [](ScheduleBuilder&) {};
  expect_fault(verify(Collective::kAllreduce, two_ranks(1, nothing, nothing)),
               "rank 0 ends with a value that misses the contribution of rank 1 in chunk 0");
  expect_fault(verify(Collective::kBroadcast, two_ranks(1, nothing, nothing)), "rank 1 ends with nothing in chunk 0");
  expect_fault(verify(Collective::kBarrier, two_ranks(1, nothing, nothing)), "misses the contribution of rank 1");
}

TEST(VerifierTest, RefusesResultsWithoutTheFinalScaleOrWithTwo) {
  const auto reduce = [](int finishes) {
    return two_ranks(
        1,
        [finishes](ScheduleBuilder& builder) {
          builder.recv_reduce(1, {0, 0});
          for (int i = 0; i < finishes; ++i) {
            builder.finish({0, 0}, 1);
          }
        },
        [](ScheduleBuilder& builder) {
          builder.send(0, {0, 0});
        });
  };
  expect_fault(verify(Collective::kReduce, reduce(0)), "rank 0 ends with a value without the final scale");
  EXPECT_TRUE(verify(Collective::kReduce, reduce(1)).correct);
  expect_fault(verify(Collective::kReduce, reduce(2)), "its value is finished already");
}

TEST(VerifierTest, RefusesMessagesWithoutPartner) {
  const auto nothing = [](ScheduleBuilder&) {};
  const auto send = [](ScheduleBuilder& builder) { builder.send(1, {0, 0}); };
  const auto recv = [](ScheduleBuilder& builder) { builder.recv(1, {0, 0}); };
  expect_fault(verify(Collective::kBroadcast, two_ranks(1, send, nothing)), "rank 1 receives no such message");
  expect_fault(verify(Collective::kBroadcast, two_ranks(1, recv, nothing)), "rank 1 sends no such message");
}

TEST(VerifierTest, RefusesDeadlocks) {
  // Both ranks first send the data that they have yet to receive.
  const auto schedules = two_ranks(
      2,
      [](ScheduleBuilder& builder) {
        builder.recv(1, {1, 0});
        builder.round(1);
        builder.send(1, {1, 0});
      },
      [](ScheduleBuilder& builder) {
        builder.recv(0, {1, 0});
        builder.round(1);
        builder.send(0, {1, 0});
      });
  expect_fault(verify(Collective::kBarrier, schedules), "the rounds differ");
  auto one_round = schedules;
  for (Schedule& schedule : one_round) {
    schedule.steps[0].round = 1;
  }
  expect_fault(verify(Collective::kBarrier, one_round), "waits for another message of its own round");
}

TEST(VerifierTest, RefusesInputReadAfterItWasOverwritten) {
  auto schedules = two_ranks(
      1,
      [](ScheduleBuilder& builder) {
        builder.recv(1, {0, 0});
        builder.round(1);
        builder.send(1, {0, 0});
      },
      [](ScheduleBuilder& builder) {
        builder.send(0, {0, 0});
        builder.round(1);
        builder.recv(0, {0, 0});
      });
  schedules[0].steps[1].operand.space = Space::kInput;
  expect_fault(verify(Collective::kBarrier, schedules), "reads the input of chunk 0, which step 0");
}

TEST(VerifierTest, RefusesSchedulesThatDoNotBelongTogether) {
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  std::vector<Schedule> schedules = {ring.make({0, 2, 0}, 1), ring.make({0, 2, 0}, 1)};
  expect_fault(verify(Collective::kAllreduce, schedules), "rank 1: its schedule is for rank 0 of 2");
  schedules = {ring.make({0, 2, 0}, 1), ring.make({1, 2, 0}, 2)};
  expect_fault(verify(Collective::kAllreduce, schedules),
               "rank 1: its schedule is for rank 1 of 2 with root 0, 2 chunks and 2");
  schedules.pop_back();
  expect_fault(verify(Collective::kAllreduce, schedules), "its schedule is for 2 ranks, not 1");
}

TEST(VerifierTest, RefusesCostsThatDifferFromTheFormula) {
  Algorithm ring = *find_algorithm(Collective::kAllreduce, "ring");
  EXPECT_TRUE(verify(ring, 4, 0, 2).correct);
  ring.cost = [](const Place&, int) { return AlgorithmCost{6, 48, 47, 24}; };
  expect_fault(verify(ring, 4, 0, 2),
               "6 rounds, 48 messages, 48 pieces sent and 24 reduced; the formula says 6, 48, 47 and 24");
}

TEST(VerifierTest, FollowsABarrierAmongMoreThan64Ranks) {
  const Algorithm& barrier = *find_algorithm(Collective::kBarrier, "dissemination");
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 130; ++rank) {
    schedules.push_back(barrier.make({rank, 130, 0}, 1));
  }
  EXPECT_TRUE(verify(Collective::kBarrier, schedules).correct);
  // Without the last round a rank has heard of 128 others only.
  for (Schedule& schedule : schedules) {
    schedule.steps.resize(schedule.steps.size() - 3);
  }
  expect_fault(verify(Collective::kBarrier, schedules),
               "rank 0 ends with a value that misses the contribution of rank");
}

}  // namespace
}  // namespace farandole
