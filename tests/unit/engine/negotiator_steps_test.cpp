// SPDX-License-Identifier: Apache-2.0
// Steps that fail, and the fate of their pending requests.
#include <gmock/gmock.h>

#include "negotiator_ranks.h"

namespace farandole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr Negotiator::Generation kFirst = Negotiator::kFirstGeneration;

/// Ranks 0 and 1 have submitted "late" before rank 2 disagreed about "odd"; rank 2 will not come to it any more.
TEST(NegotiatorSteps, PendingRequestsFailWithTheirStepOnAllRanks) {
  for (const bool is_known : {false, true}) {
    Ranks ranks(3);
    if (is_known) {
      for (int rank = 0; rank < 3; ++rank) ranks.submit_in_step(rank, allgather("late"), kFirst);
      ranks.negotiation();
    }
    ranks.submit_in_step(0, allgather("late"), kFirst);
    ranks.submit_in_step(1, allgather("late"), kFirst);
    ranks.submit(0, allgather("of no step"));
    EXPECT_THAT(ranks.negotiation().buckets, IsEmpty());
    for (int rank = 0; rank < 3; ++rank) ranks.submit_in_step(rank, allreduce("odd", rank == 2 ? 2 : 1), kFirst);
    ranks.negotiation();
    EXPECT_THAT(ranks.results[2].failed, ElementsAre(HasSubstr("rank 2 submitted allreduce 'odd' f32[2]")));
    EXPECT_THAT(ranks.results[0].failed,
                UnorderedElementsAre(ranks.results[2].failed.front(),
                                     AllOf(HasSubstr("Mismatch"), HasSubstr("'late' is of a step that has failed"),
                                           HasSubstr("rank 2 submitted"), HasSubstr("no data was touched"))));
    EXPECT_EQ(ranks.results[1].failed, ranks.results[0].failed);
    EXPECT_THAT(ranks[0].pending_names(), ElementsAre("of no step"));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].generation(), kFirst + 1);

    // A kernel that was about to start when its step failed.
    const auto refused = ranks.submit_in_step(2, allgather("late"), kFirst);
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->kind, ErrorKind::kMismatch);
    EXPECT_THAT(refused->text, AllOf(HasSubstr("'late' is of a step that has failed"), HasSubstr("rank 2 submitted")));

    // Rank 2 goes on first: nothing is left that its next step could meet.
    EXPECT_EQ(ranks.submit_in_step(2, allgather("late"), kFirst + 1), std::nullopt);
    EXPECT_THAT(ranks.negotiation().buckets, IsEmpty());
    ranks.submit_in_step(0, allgather("late"), kFirst + 1);
    ranks.submit_in_step(1, allgather("late"), kFirst + 1);
    const auto last = ranks.negotiation();
    EXPECT_THAT(last.buckets, ElementsAre(ElementsAre("late")));
    EXPECT_THAT(last.zeros, IsEmpty());
  }
}

TEST(NegotiatorSteps, FailureOfARequestOfNoStepEndsNoStep) {
  Ranks ranks(2);
  ranks.submit_in_step(0, allgather("late"), kFirst);
  for (int rank = 0; rank < 2; ++rank) ranks.submit(rank, allreduce("odd", 1 + rank));
  EXPECT_THAT(ranks.negotiation().failed, SizeIs(1));
  EXPECT_EQ(ranks[0].generation(), kFirst);
  ranks.submit_in_step(1, allgather("late"), kFirst);
  EXPECT_THAT(ranks.negotiation().buckets, ElementsAre(ElementsAre("late")));
}

/// The negotiation in which the step fails may be the one in which another request of it is ready: then it is done.
TEST(NegotiatorSteps, RequestReadyWhenItsStepFailsIsDoneOnAllRanks) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allgather("known"), kFirst);
  ranks.negotiation();
  ranks.submit_in_step(0, allgather("known"), kFirst);
  ranks.submit_in_step(0, allgather("announced"), kFirst);
  ranks.negotiation();
  for (const char* name : {"known", "announced"}) ranks.submit_in_step(1, allgather(name), kFirst);
  for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allreduce("odd", 1 + rank), kFirst);
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("known"), ElementsAre("announced")));
  EXPECT_THAT(result.failed, SizeIs(1));
}

/// Submitted while the negotiation is under way: it has been announced to nobody, and is gone all the same.
TEST(NegotiatorSteps, RequestSubmittedWhileItsStepFailsFailsToo) {
  for (const bool is_known : {false, true}) {
    Ranks ranks(2);
    for (int rank = 0; is_known && rank < 2; ++rank) ranks.submit_in_step(rank, allgather("late"), kFirst);
    if (is_known) ranks.negotiation();
    for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allreduce("odd", 1 + rank), kFirst);
    ranks.meanwhile = [&] { ranks.submit_in_step(0, allgather("late"), kFirst); };
    EXPECT_THAT(ranks.negotiation().failed, SizeIs(2));
    EXPECT_FALSE(ranks[0].has_pending());
    EXPECT_FALSE(ranks[0].must_answer());
    EXPECT_EQ(ranks[0].next_wakeup(), Negotiator::Time::max())
        << "there is nothing to announce, and rank 1 need not answer";
  }
}

/// Ranks that have joined have no part in the step, and must end it with the others.
TEST(NegotiatorSteps, CollectiveClosedToJoinedRanksFailsTheStep) {
  Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) ranks.submit_in_step(rank, allgather("known"), kFirst);
  ranks.negotiation();
  ranks[2].join();
  ranks.submit_in_step(0, allreduce("late"), kFirst);
  ranks.negotiation();
  for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allgather("known"), kFirst);
  ranks.negotiation();
  EXPECT_THAT(ranks.results[0].failed, SizeIs(2));
  EXPECT_THAT(ranks.results[1].failed, SizeIs(1));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].generation(), kFirst + 1);
}

/// By the bytes of a negotiation that goes on with announcements: who receives of the failure may begin the next step
/// at once, and that one must be of the next generation.
TEST(NegotiatorSteps, FailureIsReportedAfterTheStepHasEnded) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allgather("known"), kFirst);
  ranks.negotiation();
  ranks[1].join();
  ranks.negotiation();
  ranks.submit_in_step(0, allgather("known"), kFirst);
  ranks.submit(0, allreduce("of no step"));
  const auto own = ranks[0].open(false, ranks.now), other = ranks[1].open(false, ranks.now);
  std::vector<std::uint8_t> announced(own.begin(), own.end());
  for (std::size_t i = 0; i < announced.size(); ++i) announced[i] = std::min(announced[i], other[i]);
  const auto outcome = ranks[0].receive(announced, ranks.now);
  ASSERT_TRUE(outcome.needs_announcements);
  EXPECT_THAT(outcome.failed, IsEmpty());
  EXPECT_THAT(
      ranks[0].receive_announcements(std::vector{ranks[0].announcements(), ranks[1].announcements()}, ranks.now).failed,
      SizeIs(1));
  EXPECT_EQ(ranks[0].generation(), kFirst + 1);
}

TEST(NegotiatorSteps, SlotUnusedByStepsIsAnnouncedAgain) {
  Ranks ranks(2);
  ranks.submit_all(allgather("g"));
  ranks.negotiation();
  for (const bool had_announcements : {true, false}) {
    for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allgather("g"), kFirst);
    const auto result = ranks.negotiation();
    EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("g")));
    EXPECT_EQ(result.had_announcements, had_announcements);
  }
  ranks.submit_all(allgather("g"));
  EXPECT_FALSE(ranks.negotiation().had_announcements);
}

/// Numbers and buckets outlive a step that fails.
TEST(NegotiatorSteps, StepAfterAFailedStepAnnouncesNoNames) {
  Ranks ranks(2);
  const auto step = [&](Negotiator::Generation generation) {
    for (const char* name : {"a", "b", "c"}) {
      for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allreduce(name), generation);
    }
  };
  step(kFirst);
  ranks.negotiation();
  ranks.submit_in_step(0, allreduce("a"), kFirst);  // a part of the bucket, which is held
  for (int rank = 0; rank < 2; ++rank) ranks.submit_in_step(rank, allreduce("odd", 1 + rank), kFirst);
  ranks.negotiation();
  step(kFirst + 1);
  const auto result = ranks.negotiation();
  EXPECT_THAT(result.buckets, ElementsAre(ElementsAre("a", "b", "c")));
  EXPECT_FALSE(result.had_announcements);
  EXPECT_EQ(ranks[0].counters().broken_buckets, 0U);
}

}  // namespace
}  // namespace farandole::testing
