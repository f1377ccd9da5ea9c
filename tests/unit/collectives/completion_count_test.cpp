// SPDX-License-Identifier: Apache-2.0
// The sequence number up to which all collectives of a communicator are complete, with several collectives in flight.
#include "shared_memory/lane_ledger.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(CompletionCount, OldestInFlightCollectiveBoundsTheCount) {
  CompletionCount completion;
  completion.begin(0, 2);
  completion.begin(1, 4);
  completion.end(1, 0);
  EXPECT_EQ(completion.completed(), 1U);
  completion.end(0, 0);
  EXPECT_EQ(completion.completed(), 4U);
}

TEST(CompletionCount, ReturnsThePreviousCollectiveOfTheLane) {
  CompletionCount completion;
  EXPECT_EQ(completion.begin(0, 2), 0U);
  completion.end(0, 3);
  EXPECT_EQ(completion.begin(0, 3), 2U);
  completion.end(0, 0);
  EXPECT_EQ(completion.begin(0, 10), 3U);
}

/// A later one may begin and end before it begins, and even before its second half does.
TEST(CompletionCount, AnnouncedCollectivesAreNotCompleted) {
  CompletionCount completion;
  completion.begin(0, 2);
  completion.begin(1, 4);
  completion.end(1, 0);
  EXPECT_EQ(completion.completed(), 1U);
  EXPECT_EQ(completion.begin(0, 2), 0U) << "it begins";
  completion.end(0, 3);
  EXPECT_EQ(completion.completed(), 2U);
  completion.begin(0, 3);
  completion.end(0, 0);
  EXPECT_EQ(completion.completed(), 4U);
}

TEST(CompletionCount, WithdrawnCollectivesDoNotBlockTheCount) {
  CompletionCount completion;
  EXPECT_EQ(completion.begin(0, 2), 0U);
  completion.begin(1, 4);
  completion.end(1, 0);
  completion.withdraw(0);
  EXPECT_EQ(completion.completed(), 4U);
  EXPECT_EQ(completion.begin(0, 10), 0U) << "it has not used the lane";
}

}  // namespace
}  // namespace farandole
