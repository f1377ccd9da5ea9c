// SPDX-License-Identifier: Apache-2.0
// Detection of ranks that wait for each other, driven by hand.
#include <gmock/gmock.h>

#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NegotiatorWaits, DeadlockIsReportedAfterASecondCheck) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"), Waiting::kCaller);
  ranks.submit(1, allreduce("b"), Waiting::kCaller);
  EXPECT_THAT(ranks.negotiation(/*blocked=*/true).failed, IsEmpty()) << "a thread may be about to submit";
  EXPECT_EQ(ranks[0].next_wakeup(), ranks.now + milliseconds(300));
  ranks.pass(milliseconds(300));
  const auto result = ranks.negotiation(/*blocked=*/true);
  for (const auto& each : ranks.results) {
    EXPECT_THAT(each.failed,
                ElementsAre(AllOf(HasSubstr("Mismatch"), HasSubstr("rank 0 for 'a'"), HasSubstr("rank 1 for 'b'"))));
  }
  ranks.submit_all(allreduce("a"), Waiting::kCaller);
  EXPECT_THAT(ranks.negotiation(true).buckets, ElementsAre(ElementsAre("a")));
}

TEST(NegotiatorWaits, SubmitOnOneRankClearsTheSuspicion) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"), Waiting::kCaller);
  ranks.submit(1, allreduce("b"), Waiting::kCaller);
  ranks.negotiation(true);
  ranks.submit(1, allreduce("c"));  // another thread, which may submit "a" next
  ranks.pass(milliseconds(300));
  EXPECT_THAT(ranks.negotiation(true).failed, IsEmpty());
  EXPECT_EQ(ranks[0].next_wakeup(), ranks.now + milliseconds(300)) << "the suspicion begins again";
}

TEST(NegotiatorWaits, SuspicionEndsWithASubmission) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"), Waiting::kCaller);
  ranks.submit(1, allreduce("b"), Waiting::kCaller);
  ranks.negotiation(true);
  ranks.submit(1, allreduce("a"));  // another thread
  EXPECT_EQ(ranks[1].next_wakeup(), ranks.now + milliseconds(1));
  ranks.pass(milliseconds(300));
  const auto result = ranks.negotiation(true);
  EXPECT_THAT(result.failed, IsEmpty());
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("a")));
}

/// A thread may wait for a request that is agreed on and still in flight, and submit further requests afterwards.
TEST(NegotiatorWaits, ThreadThatWaitsForSomethingElseIsNotSuspected) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"));
  ranks.submit(1, allreduce("b"));
  ranks.negotiation(/*blocked=*/true);
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max());
}

/// Names are exchanged only if all ranks are idle, and are still idle a moment later.
TEST(NegotiatorWaits, IdleRanksExchangeTheNamesTheyWaitFor) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"), Waiting::kProgram);
  ranks.submit(1, allreduce("b"), Waiting::kProgram);
  EXPECT_THAT(ranks.negotiation().failed, IsEmpty());
  ranks.stand_still(0);
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now);
  EXPECT_THAT(ranks.negotiation().failed, IsEmpty());
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max()) << "rank 1 may still do something";
  ranks.stand_still(1);
  EXPECT_THAT(ranks.negotiation().failed, IsEmpty());
  EXPECT_EQ(ranks[0].next_wakeup(), ranks.now + milliseconds(300));
  ranks.pass(milliseconds(300));
  EXPECT_THAT(ranks.negotiation().failed,
              ElementsAre(AllOf(HasSubstr("Mismatch every rank waits for a name that its peers have not submitted"),
                                HasSubstr("rank 0 for 'a'; rank 1 for 'b'"))));
  EXPECT_EQ(ranks.results[0].failed, ranks.results[1].failed);
  ranks.submit_all(allreduce("a"));
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
}

TEST(NegotiatorWaits, RankThatProgressesMeanwhileIsNotIdle) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"), Waiting::kProgram);
  ranks.submit(1, allreduce("b"), Waiting::kProgram);
  ranks.negotiation();
  ranks.stand_still(0);
  ranks.stand_still(1);
  ranks.negotiation();
  ranks.go_on(1);
  ranks.pass(milliseconds(300));
  for (int negotiation = 0; negotiation < 3; ++negotiation) EXPECT_THAT(ranks.negotiation().failed, IsEmpty());
  ranks.submit(1, allreduce("a"), Waiting::kProgram);
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
}

/// A rank would begin a negotiation that no other has a reason to answer.
TEST(NegotiatorWaits, FinishedRequestsAreNoLongerWaitedFor) {
  Ranks ranks(2);
  ranks.submit_all(allreduce("a"), Waiting::kProgram);
  ranks.meanwhile = [&] { ranks.stand_still(0); };
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max());
}

TEST(NegotiatorWaits, NobodyWaitsForARankThatHasJoined) {
  Ranks ranks(3);
  ASSERT_EQ(ranks[0].join(), std::nullopt);
  ranks.submit(1, allreduce("a"), Waiting::kCaller);
  ranks.submit(2, allreduce("b"), Waiting::kCaller);
  ranks.negotiation(/*blocked=*/true);
  ranks.negotiation(/*blocked=*/true);
  ranks.pass(milliseconds(300));
  ranks.negotiation(/*blocked=*/true);
  EXPECT_THAT(ranks.results[0].failed, IsEmpty());
  EXPECT_THAT(ranks.results[1].failed, ElementsAre(HasSubstr("submitted: rank 1 for 'a'; rank 2 for 'b'; no data")));
  EXPECT_EQ(ranks.results[1].failed, ranks.results[2].failed);
}

TEST(NegotiatorWaits, ARequestIsWaitedForByThoseThatComeAfterIt) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"));
  ranks.submit(1, allreduce("b"), Waiting::kCaller);
  EXPECT_FALSE(ranks[0].is_waited_for());
  ranks[0].wait_for("a", Waiting::kCaller);
  ranks[0].wait_for("there is none", Waiting::kCaller);
  EXPECT_TRUE(ranks[0].is_waited_for());
  ranks.negotiation(/*blocked=*/true);
  ranks.pass(milliseconds(300));
  EXPECT_THAT(ranks.negotiation(/*blocked=*/true).failed, ElementsAre(HasSubstr("rank 0 for 'a'; rank 1 for 'b'")));
}

}  // namespace
}  // namespace farandole::testing
