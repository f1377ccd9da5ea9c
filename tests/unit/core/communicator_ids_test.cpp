// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/communicator_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using IdStage = CommunicatorIds::Stage;

TEST(CommunicatorIds, ReservedIdsAreNotFree) {
  CommunicatorIds ids;
  CommunicatorIds::Reservation one(ids), other(ids);
  one.take_lowest(2);
  EXPECT_THAT(one.ids(), ElementsAre(0, 1));
  EXPECT_EQ(ids.used()[1], 1);
  other.take_lowest(1);
  EXPECT_THAT(other.ids(), ElementsAre(2));
  const std::array<std::uint16_t, 2> chosen{3, 1};
  EXPECT_FALSE(other.take(chosen));
  EXPECT_THAT(other.ids(), IsEmpty());
  EXPECT_EQ(ids.used()[2], 0) << "freed";
  EXPECT_EQ(ids.used()[3], 0) << "not reserved alone";
  one.clear();
  EXPECT_TRUE(other.take(chosen));
  EXPECT_THAT(other.ids(), ElementsAre(3, 1));
}

TEST(CommunicatorIds, AReservationEndsWithItsObjectUnlessItIsKept) {
  CommunicatorIds ids;
  {
    CommunicatorIds::Reservation dropped(ids), kept(ids);
    dropped.take_lowest(1);
    kept.take_lowest(1);
    ids.take({1, kept.generation()});
    kept.keep();
  }
  EXPECT_EQ(ids.used()[0], 0);
  EXPECT_EQ(ids.used()[1], 1);
}

TEST(CommunicatorIds, NothingIsReservedIfTooFewAreFree) {
  CommunicatorIds ids;
  CommunicatorIds::Reservation all(ids), more(ids);
  all.take_lowest(kMaxCommunicators - 2);  // all but kMessageChannels and one
  more.take_lowest(2);
  EXPECT_THAT(more.ids(), IsEmpty());
  EXPECT_EQ(more.generation(), 0U);
  more.take_lowest(1);
  EXPECT_THAT(more.ids(), ElementsAre(kMaxCommunicators - 2));
}

TEST(CommunicatorIds, GenerationsGrow) {
  CommunicatorIds ids;
  ids.take({5, 9});
  ids.release(5);
  const std::array<std::uint16_t, 1> five{5};
  CommunicatorIds::Reservation next(ids);
  ASSERT_TRUE(next.take(five));
  EXPECT_EQ(next.generation(), 10U);
}

/// A late message for the released communicator must be dropped, not kept for a communicator of this key.
TEST(CommunicatorIds, AReleasedCommunicatorStaysReleasedWhileItsIdIsReserved) {
  CommunicatorIds ids;
  ids.take({5, 9});
  EXPECT_EQ(ids.stage_of({5, 9}), IdStage::kInUse);
  ids.release(5);
  const std::array<std::uint16_t, 1> five{5};
  CommunicatorIds::Reservation next(ids);
  ASSERT_TRUE(next.take(five));
  EXPECT_EQ(ids.stage_of({5, 9}), IdStage::kReleased);
  EXPECT_EQ(ids.stage_of({5, 10}), IdStage::kNotMade);
}

}  // namespace
}  // namespace farandole
