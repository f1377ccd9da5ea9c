// SPDX-License-Identifier: Apache-2.0
// The Negotiator, driven by hand.
#include <gmock/gmock.h>

#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Negotiator, NamesAreAnnouncedOnceThenSlotBits) {
  Ranks ranks(3);
  for (int step = 0; step < 3; ++step) {
    ranks.submit_all(allgather("g"));
    const auto result = ranks.negotiation();
    EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("g")));
    EXPECT_EQ(result.had_announcements, step == 0);
  }
  EXPECT_EQ(ranks[0].counters().named, 1U);
  EXPECT_EQ(ranks[2].counters().negotiations, 3U);
}

TEST(Negotiator, WaitsUntilEveryRankHasSubmitted) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"));
  EXPECT_THAT(ranks.negotiation().buckets, IsEmpty());
  EXPECT_TRUE(ranks[0].must_answer());
  EXPECT_FALSE(ranks[1].must_answer()) << "nothing can be ready without it";
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max()) << "it has announced it";
  EXPECT_THAT(ranks[0].describe_waiting(), HasSubstr("not submitted yet by rank 1"));
  ranks.submit(1, allreduce("a"));
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
  EXPECT_FALSE(ranks[0].has_pending());
  EXPECT_FALSE(ranks[0].must_answer());
}

TEST(Negotiator, NewNamesWaitToBeAnnouncedTogether) {
  Ranks ranks(2);
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max());
  ranks.submit(0, allreduce("a"));
  EXPECT_EQ(ranks[0].next_wakeup(), ranks.now + milliseconds(1));
  const auto first = ranks.now;
  for (int i = 0; i < 40; ++i) {
    ranks.pass(milliseconds(1));
    ranks.submit(0, allreduce("b" + std::to_string(i)));
    EXPECT_EQ(ranks[0].next_wakeup(), std::min(ranks.now + milliseconds(1), first + milliseconds(20)));
  }
  ranks.submit(0, allreduce("w"), Waiting::kCaller);
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now) << "a caller waits";
}

TEST(Negotiator, KnownNamesAreNegotiatedImmediately) {
  Ranks ranks(2);
  ranks.submit_all(allgather("g"));
  ranks.negotiation();
  ranks.submit(1, allgather("g"));
  EXPECT_LE(ranks[1].next_wakeup(), ranks.now);
}

TEST(Negotiator, SmallAllreducesThatAreReadyTogetherStayTogether) {
  Ranks ranks(2);
  for (const char* name : {"a", "b", "c"}) ranks.submit_all(allreduce(name));
  ranks.submit_all(allreduce("large", 1000));
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("large")));
  ranks.submit_all(allreduce("b"));
  ranks.submit_all(allreduce("c"));
  EXPECT_EQ(ranks[0].next_wakeup(), ranks.now + milliseconds(25)) << "the rest of the bucket may come";
  EXPECT_FALSE(ranks[0].must_answer());
  ranks.submit_all(allreduce("a"));
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now);
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a", "b", "c")));
  EXPECT_EQ(ranks[0].counters().broken_buckets, 0U);
}

TEST(Negotiator, DifferentOperationsAreNotReducedTogether) {
  Ranks ranks(2);
  RequestSpec max = allreduce("max");
  max.op = ReduceOp::kMax;
  RequestSpec scaled = allreduce("scaled");
  scaled.prescale = 0.5;
  RequestSpec adasum = allreduce("adasum");
  adasum.adasum = true;
  for (const auto& spec : {allreduce("a"), max, scaled, adasum, allreduce("b")}) ranks.submit_all(spec);
  EXPECT_THAT(ranks.negotiation().buckets,
              ElementsAre(ElementsAre("a", "b"), ElementsAre("max"), ElementsAre("scaled"), ElementsAre("adasum")));
}

TEST(Negotiator, BucketsAreBounded) {
  Ranks ranks(2);
  for (int i = 0; i < 5; ++i) ranks.submit_all(allreduce("t" + std::to_string(i), 100));
  EXPECT_THAT(ranks.negotiation().buckets,
              ElementsAre(ElementsAre("t0", "t1"), ElementsAre("t2", "t3"), ElementsAre("t4")));
}

TEST(Negotiator, RepeatedlyPartialBucketIsNoLongerHeld) {
  Ranks ranks(2);
  for (const char* name : {"a", "b"}) ranks.submit_all(allreduce(name));
  ranks.negotiation();
  for (int breaks = 1; breaks <= 3; ++breaks) {
    ranks.submit_all(allreduce("a"));
    ranks.pass(milliseconds(25));
    EXPECT_LE(ranks[0].next_wakeup(), ranks.now);
    EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
    EXPECT_EQ(ranks[1].counters().broken_buckets, static_cast<unsigned>(breaks));
    // Together again.
    for (const char* name : {"a", "b"}) ranks.submit_all(allreduce(name));
    EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a", "b")));
  }
  ranks.submit_all(allreduce("a"));
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now) << "after three breaks it is in no bucket any more";
}

/// Each rank has announced the part that it had; what comes later must be announced all the same.
TEST(Negotiator, PartsOfABucketInDifferentOrdersAreDone) {
  Ranks ranks(2);
  for (const char* name : {"a", "b", "c"}) ranks.submit_all(allreduce(name));
  ranks.negotiation();
  ranks.submit(0, allreduce("a"));
  ranks.submit(1, allreduce("b"));
  ranks.pass(milliseconds(25));
  EXPECT_THAT(ranks.negotiation().buckets, IsEmpty());
  ranks.submit(0, allreduce("b"));
  ranks.submit(1, allreduce("a"));
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now);
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a", "b")));
}

TEST(Negotiator, CallerThatWaitsDoesNotWaitForTheRestOfABucket) {
  Ranks ranks(2);
  for (const char* name : {"a", "b"}) ranks.submit_all(allreduce(name));
  ranks.negotiation();
  ranks.submit_all(allreduce("a"), Waiting::kCaller);
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now);
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
}

TEST(Negotiator, ChangedDescriptionRetiresTheNumberOnAllRanks) {
  Ranks ranks(3);
  ranks.submit_all(allreduce("a"));
  ranks.negotiation();
  // Two ranks have announced the old number already; the third tells another shape.
  ranks.submit(0, allreduce("a"));
  ranks.submit(1, allreduce("a"));
  ranks.submit(2, allreduce("a", 2));
  EXPECT_THAT(ranks.negotiation().buckets, IsEmpty());
  const auto result = ranks.negotiation();
  EXPECT_TRUE(result.had_announcements) << "the number is gone, so the others tell the name again";
  for (const auto& each : ranks.results) {
    EXPECT_THAT(each.failed,
                ElementsAre(AllOf(HasSubstr("Mismatch"), HasSubstr("rank 0, rank 1 submitted"), HasSubstr("f32[1]"),
                                  HasSubstr("rank 2 submitted"), HasSubstr("f32[2]"))));
    EXPECT_EQ(each.failed, result.failed) << "all ranks raise the same";
  }
  ranks.submit_all(allreduce("a", 2));
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("a")));
}

TEST(Negotiator, TableEvictsLeastRecentlyUsedSlots) {
  Ranks ranks(2, {{1024, 512}, 2});
  for (const char* name : {"g", "h", "g"}) {
    ranks.submit_all(allgather(name));
    ranks.negotiation();
  }
  ranks.submit(0, allgather("h"));  // announced by number; then the number goes
  ranks.submit_all(allgather("i"));
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("i")));
  ranks.submit(1, allgather("h"));
  const auto named = ranks[1].counters().named;
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("h")));
  EXPECT_EQ(ranks[1].counters().named, named + 1) << "it is announced again";
  ranks.negotiation();
  EXPECT_EQ(ranks.slots, 2U);
}

TEST(Negotiator, JoinedRanksSupplyZeros) {
  Ranks ranks(3);
  ranks.submit_all(allreduce("known"));
  ranks.negotiation();
  ranks[2].join();
  EXPECT_LE(ranks[2].next_wakeup(), ranks.now);
  for (const int rank : {0, 1}) {
    ranks.submit(rank, allreduce("known"));
    ranks.submit(rank, allreduce("new"));
  }
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("new")));
  EXPECT_THAT(ranks.results[2].zeros, ElementsAre("new"));
  EXPECT_LE(ranks[0].next_wakeup(), ranks.now) << "what it has announced before may be ready now";
  EXPECT_EQ(ranks[2].next_wakeup(), Negotiator::Time::max());
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("known")));
  EXPECT_THAT(ranks.results[2].zeros, ElementsAre("known"));
  EXPECT_THAT(ranks.results[0].zeros, IsEmpty());
}

TEST(Negotiator, CollectivesClosedToJoinedRanksFailOnAllRanks) {
  Ranks ranks(2);
  ranks.submit_all(allgather("known"));
  ranks.negotiation();
  ranks[1].join();
  ranks.negotiation();
  ranks.submit(0, allgather("known"));
  ranks.submit(0, allgather("new"));
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.failed, SizeIs(2));
  EXPECT_THAT(result.failed, Each(AllOf(HasSubstr("Mismatch"), HasSubstr("a rank has joined"))));
  EXPECT_THAT(result.buckets, IsEmpty());
}

TEST(Negotiator, PendingRequestsFinishBeforeTheJoinCompletes) {
  Ranks ranks(2);
  ranks.submit_all(allreduce("known"));
  ranks.submit_all(allgather("rows"));
  ranks.negotiation();
  ranks.submit(0, allreduce("known"));
  ranks.submit(0, allgather("rows"));
  ranks.submit(1, allreduce("new"));
  ranks[0].join();
  ranks[1].join();
  auto result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("new")));
  EXPECT_THAT(result.zeros, ElementsAre("new"));
  EXPECT_EQ(result.all_joined, -1);
  EXPECT_LE(ranks[1].next_wakeup(), ranks.now);
  result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("known")));
  EXPECT_THAT(ranks.results[1].zeros, ElementsAre("known"));
  EXPECT_THAT(result.failed, ElementsAre(HasSubstr("'rows'")));
  EXPECT_EQ(result.all_joined, 1);
  EXPECT_FALSE(ranks[0].must_answer());
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max());
}

TEST(Negotiator, JoiningAgainIsTheSameJoin) {
  Ranks ranks(2);
  ranks[0].join();
  ranks.meanwhile = [&] { ranks[0].join(); };
  ranks.negotiation();
  ranks[0].join();
  ranks[1].join();
  ranks.negotiation();
  EXPECT_EQ(ranks.negotiation().all_joined, 1) << "the last one that joined";
  EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max());
}

/// It may become ready in the very negotiation that is under way.
TEST(Negotiator, AnnouncedRequestsAreDoneThoughTheRankLeaves) {
  Ranks ranks(2);
  ranks.submit_all(allgather("a"));
  ranks.meanwhile = [&] { ranks[0].leave(Departure::kLeavesJob); };
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("a")));
  EXPECT_THAT(result.zeros, IsEmpty());
}

TEST(Negotiator, LeavingIsAnnouncedAndEndsOnceAllHaveLeft) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"));
  ranks.negotiation();
  ranks[1].leave(Departure::kLeavesJob);
  auto result = ranks.negotiation();
  EXPECT_THAT(result.failed, ElementsAre(AllOf(HasSubstr("PeerLost"), HasSubstr("rank 1 has left the job"))));
  EXPECT_FALSE(result.all_left);
  EXPECT_FALSE(ranks[0].has_pending());
  const auto refused = ranks[0].submit({99, allreduce("b")}, ranks.now);
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->text, AllOf(HasSubstr("'b'"), HasSubstr("rank 1 has left")));
  EXPECT_TRUE(ranks[0].join().has_value()) << "it would wait for ever";
  ranks[0].leave(Departure::kLeavesJob);
  EXPECT_TRUE(ranks[1].must_answer());
  EXPECT_TRUE(ranks.negotiation().all_left);
}

TEST(Negotiator, RequestReadyAsARankLeavesIsDoneOnAllRanks) {
  Ranks ranks(2);
  ranks.submit_all(allreduce("a"));
  ranks.negotiation();
  ranks.submit_all(allreduce("a"));
  ranks[0].leave(Departure::kLeavesJob);
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("a")));
  EXPECT_THAT(result.failed, IsEmpty());
}

TEST(Negotiator, RemovedSetIsAnInvalidArgument) {
  Ranks ranks(2);
  ranks.submit(0, allreduce("a"));
  ranks[0].leave(Departure::kSetRemoved);
  ranks[1].leave(Departure::kSetRemoved);
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.failed, ElementsAre(AllOf(HasSubstr("InvalidArgument"), HasSubstr("has been removed"))));
  EXPECT_TRUE(result.all_left);
}

TEST(Negotiator, MismatchNamesEveryVariant) {
  Ranks ranks(3);
  RequestSpec root = allreduce("x");
  root.kind = RequestKind::kBroadcast;
  root.root = 2;
  ranks.submit(0, allreduce("x"));
  ranks.submit(1, allgather("x"));
  ranks.submit(2, root);
  EXPECT_THAT(ranks.negotiation().failed,
              ElementsAre(AllOf(HasSubstr("rank 0 submitted allreduce 'x'"), HasSubstr("rank 1 submitted allgather"),
                                HasSubstr("rank 2 submitted broadcast 'x' f32[1] from root 2"))));
  EXPECT_FALSE(ranks[0].has_pending());
}

TEST(Negotiator, WaitingIsDescribedOldestFirst) {
  Ranks ranks(2);
  for (int i = 0; i < 7; ++i) ranks.submit(0, allreduce("t" + std::to_string(i)));
  EXPECT_THAT(ranks[0].pending_names(), ElementsAre("t0", "t1", "t2", "t3", "t4", "t5", "t6"));
  EXPECT_THAT(ranks[0].describe_waiting(), AllOf(HasSubstr("'t4'"), HasSubstr("2 more"), Not(HasSubstr("'t5'"))));
  EXPECT_EQ(ranks[0].oldest(), ranks.now);
  EXPECT_EQ(ranks[1].oldest(), std::nullopt);
}

}  // namespace
}  // namespace farandole::testing
