// SPDX-License-Identifier: Apache-2.0
// The schedule builder: memory that reads and writes use, dependencies, errors.
#include "farandole/collectives/schedule.h"

#include <gtest/gtest.h>

#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

using After = std::vector<int>;
constexpr Place kRank0Of4{0, 4, 0};

TEST(ScheduleBuilderTest, ReadsOfUnwrittenPiecesReadTheInput) {
  ScheduleBuilder builder(kRank0Of4, 2, 1);
  builder.send(1, {0, 0});
  builder.recv_reduce(1, {1, 0});
  builder.recv_reduce(2, {1, 0});
  const Schedule schedule = std::move(builder).build();
  ASSERT_EQ(schedule.steps.size(), 3U);
  EXPECT_EQ(schedule.steps[0].operand.space, Space::kInput);
  EXPECT_EQ(schedule.steps[1].operand.space, Space::kInput);
  EXPECT_EQ(schedule.steps[1].target.space, Space::kData);
  EXPECT_EQ(schedule.steps[2].operand.space, Space::kData);
  EXPECT_EQ(schedule.steps[2].after, After{1});
  EXPECT_EQ(schedule.untouched, (std::vector<bool>{true, false}));
}

TEST(ScheduleBuilderTest, PartlyWrittenRangeIsCopiedFromTheInputFirst) {
  ScheduleBuilder builder(kRank0Of4, 4, 1);
  builder.recv(1, {2, 0});
  builder.round(1);
  builder.send(2, {0, 0}, 4);
  const Schedule schedule = std::move(builder).build();
  ASSERT_EQ(schedule.steps.size(), 4U);
  EXPECT_EQ(schedule.steps[1].kind, StepKind::kCopy);
  EXPECT_EQ(schedule.steps[1].operand.space, Space::kInput);
  EXPECT_EQ(schedule.steps[1].target.first, 0);
  EXPECT_EQ(schedule.steps[1].target.count, 2);
  EXPECT_EQ(schedule.steps[2].target.first, 3);
  EXPECT_EQ(schedule.steps[2].target.count, 1);
  EXPECT_EQ(schedule.steps[2].round, 1);
  EXPECT_EQ(schedule.steps[3].operand.space, Space::kData);
  EXPECT_EQ(schedule.steps[3].after, (After{0, 1, 2}));
  EXPECT_EQ(schedule.untouched, std::vector<bool>(4, false));
}

TEST(ScheduleBuilderTest, WriteWaitsForReadsOfTheInput) {
  ScheduleBuilder builder(kRank0Of4, 1, 1);
  builder.send(1, {0, 0});
  builder.send(2, {0, 0});
  builder.recv(3, {0, 0});
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.steps[0].after, After{});
  EXPECT_EQ(schedule.steps[1].after, After{});
  EXPECT_EQ(schedule.steps[2].after, (After{0, 1}));
}

TEST(ScheduleBuilderTest, DependenciesOfDataAndScratch) {
  ScheduleBuilder builder(kRank0Of4, 1, 2);
  const Piece all{0, 0};
  builder.send(1, all, 2);             // 0
  builder.recv_scratch(1, 0, all, 2);  // 1
  builder.reduce_scratch(0, all, 2);   // 2: after the send, whose input may be the same memory, and the receive
  builder.recv_scratch(2, 0, all, 2);  // 3: the slot is free after 2
  builder.recv_scratch(2, 1, all, 2);  // 4: another slot, nothing to wait for
  builder.copy_scratch(1, {0, 1}, 1);  // 5: overwrites the data of 2
  builder.finish({0, 0}, 2);           // 6: 5 stands for 2 already
  builder.send_scratch(3, 0, all, 1);  // 7
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.scratch_slots, 2);
  EXPECT_EQ(schedule.steps[1].after, After{});
  EXPECT_EQ(schedule.steps[2].after, (After{0, 1}));
  EXPECT_EQ(schedule.steps[2].operand.space, Space::kInput);
  EXPECT_EQ(schedule.steps[3].after, After{2});
  EXPECT_EQ(schedule.steps[4].after, After{});
  EXPECT_EQ(schedule.steps[5].after, (After{2, 4}));
  EXPECT_EQ(schedule.steps[6].after, After{5});
  EXPECT_EQ(schedule.steps[7].after, After{3});
  EXPECT_EQ(schedule.steps[7].operand.space, Space::kScratch);
}

TEST(ScheduleBuilderTest, ReadsOfOnePieceDoNotWaitForEachOther) {
  ScheduleBuilder builder(kRank0Of4, 1, 1);
  builder.recv(1, {0, 0});
  builder.send(2, {0, 0});
  builder.send(3, {0, 0});
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.steps[1].after, After{0});
  EXPECT_EQ(schedule.steps[2].after, After{0});
}

TEST(ScheduleBuilderTest, MessagesOfOneDirectionAndPeerArePostedInOrder) {
  ScheduleBuilder builder(kRank0Of4, 4, 1);
  builder.send(1, {0, 0});         // 0
  builder.recv(1, {1, 0});         // 1
  builder.send(2, {0, 0});         // 2
  builder.send(1, {0, 0});         // 3
  builder.recv_reduce(1, {2, 0});  // 4
  const Schedule schedule = std::move(builder).build();
  const std::vector<int> expected = {-1, -1, -1, 0, 1};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(schedule.steps[i].posted_after, expected[i]) << "step " << i;
  }
}

TEST(ScheduleBuilderTest, RoundsMayBeSetInAnyOrder) {
  ScheduleBuilder builder(kRank0Of4, 2, 1);
  builder.round(4);
  builder.send(1, {0, 0});
  builder.round(2);
  builder.send(2, {1, 0});
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.rounds, 5);
  EXPECT_EQ(schedule.steps[0].round, 4);
  EXPECT_EQ(schedule.steps[1].round, 2);
}

TEST(ScheduleBuilderTest, CopyMovesToOtherPieces) {
  ScheduleBuilder builder(kRank0Of4, 8, 2);
  builder.copy({0, 0}, {4, 0}, 2);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.steps[0].operand.first, 0);
  EXPECT_EQ(schedule.steps[0].operand.space, Space::kInput);
  EXPECT_EQ(schedule.steps[0].target.first, 8);
  EXPECT_TRUE(schedule.untouched[0]);
  EXPECT_FALSE(schedule.untouched[9]);
}

TEST(ScheduleBuilderTest, RefusesInvalidRanksAndPieces) {
  EXPECT_THROW(ScheduleBuilder({4, 4, 0}, 1, 1), InvalidArgument);
  EXPECT_THROW(ScheduleBuilder({0, 4, 4}, 1, 1), InvalidArgument);
  EXPECT_THROW(ScheduleBuilder(kRank0Of4, 1, 0), InvalidArgument);
  ScheduleBuilder builder(kRank0Of4, 2, 2);
  EXPECT_THROW(builder.send(0, {0, 0}), InvalidArgument);
  EXPECT_THROW(builder.send(4, {0, 0}), InvalidArgument);
  EXPECT_THROW(builder.send(1, {2, 0}), InvalidArgument);
  EXPECT_THROW(builder.send(1, {0, 2}), InvalidArgument);
  EXPECT_THROW(builder.recv(1, {1, 1}, 2), InvalidArgument);
  EXPECT_THROW(builder.recv_scratch(1, -1, {0, 0}, 1), InvalidArgument);
}

TEST(ScheduleTest, Describes) {
  ScheduleBuilder builder(kRank0Of4, 4, 2);
  builder.round(3);
  builder.recv_reduce(2, {1, 1});
  builder.send(1, {1, 0}, 3);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(describe(schedule, 0), "step 0 (recv_reduce from rank 2, round 3, chunk 1.1)");
  const int send = static_cast<int>(schedule.steps.size()) - 1;
  EXPECT_EQ(describe(schedule, schedule.steps[static_cast<std::size_t>(send)].operand), "chunks 1.0-2.0");
}

TEST(PlaceTest, GoesRound) {
  const Place at{1, 5, 0};
  EXPECT_EQ(at.next(), 2);
  EXPECT_EQ(at.previous(), 0);
  EXPECT_EQ(at.at(-7), 4);
  EXPECT_EQ(at.chunk(9), 0);
}

}  // namespace
}  // namespace farandole
