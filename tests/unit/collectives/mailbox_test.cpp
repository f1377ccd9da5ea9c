// SPDX-License-Identifier: Apache-2.0
// Which receive gets which message, and which messages reach a communicator whose id has been used before.
#include "point_to_point/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "farandole/internal/communicator_ids.h"

namespace farandole {
namespace {

/// The mailbox of rank 0 in a communicator whose ranks are the job's ranks 10, 11 and 12.
class MailboxOfThree : public testing::Test {
 protected:
  MailboxOfThree() { group_.members = {10, 11, 12}; }
  std::shared_ptr<Message> receive(int source, int tag, MessageSpace space = MessageSpace::kProgram) {
    return std::make_shared<Message>(MessageSpec{MessageSpec::Direction::kReceive, space, DType::kI32, source, tag, 1},
                                     group_, label_);
  }
  static MessageHeader header(int tag, std::uint64_t count = 1, MessageSpace space = MessageSpace::kProgram) {
    MessageHeader header;
    header.tag = tag;
    header.count = count;
    header.space = space;
    header.dtype = DType::kI32;
    return header;
  }
  Mailbox mailbox_;

 private:
  Group group_;
  const std::string label_ = "communicator 'three' of 3 ranks";
};

TEST_F(MailboxOfThree, AMessageCompletesTheOldestReceiveThatMatches) {
  const auto other_tag = receive(1, 6), any = receive(Communicator::kAnySource, 5), named = receive(1, 5);
  for (const auto& posted : {other_tag, any, named}) EXPECT_FALSE(mailbox_.take_or_await(posted));
  EXPECT_EQ(mailbox_.take_receive(12, header(6)), nullptr);
  EXPECT_EQ(mailbox_.take_receive(11, header(5)), any);
  EXPECT_EQ(mailbox_.take_receive(12, header(5)), nullptr);
  EXPECT_EQ(mailbox_.take_receive(11, header(5)), named);
  EXPECT_EQ(mailbox_.take_receive(11, header(6)), other_tag);
  EXPECT_TRUE(mailbox_.is_empty());
}

TEST_F(MailboxOfThree, AReceiveTakesTheOldestMessageThatMatches) {
  mailbox_.keep({12, header(5, 1), {}});
  mailbox_.keep({11, header(5, 2), {}});
  mailbox_.keep({11, header(5, 3), {}});
  EXPECT_EQ(mailbox_.take_or_await(receive(1, 5))->header.count, 2U);
  EXPECT_EQ(mailbox_.take_or_await(receive(Communicator::kAnySource, 5))->source, 12);
  EXPECT_EQ(mailbox_.take_or_await(receive(Communicator::kAnySource, 5))->header.count, 3U);
}

TEST_F(MailboxOfThree, SpacesDoNotMatchEachOther) {
  EXPECT_FALSE(mailbox_.take_or_await(receive(Communicator::kAnySource, 0)));
  EXPECT_EQ(mailbox_.take_receive(11, header(0, 1, MessageSpace::kCreation)), nullptr);
  mailbox_.keep({11, header(0, 1, MessageSpace::kCreation), {}});
  EXPECT_FALSE(mailbox_.take_or_await(receive(1, 0)));
  EXPECT_TRUE(mailbox_.take_or_await(receive(1, 0, MessageSpace::kCreation)));
}

TEST_F(MailboxOfThree, NamesMessagesWithOtherTags) {
  const auto posted = receive(1, 5);
  mailbox_.keep({12, header(7), {}});
  EXPECT_EQ(mailbox_.describe_others(*posted), "");
  for (int tag = 6; tag < 11; ++tag) mailbox_.keep({11, header(tag, 3), {}});
  EXPECT_EQ(mailbox_.describe_others(*posted),
            "3 i32 with tag 6 from rank 11, 3 i32 with tag 7 from rank 11, 3 i32 with tag 8 from rank 11, 3 i32 with "
            "tag 9 from rank 11, …");
}

TEST(CommunicatorIds, GenerationsTellCommunicatorsWithTheSameIdApart) {
  using Stage = CommunicatorIds::Stage;
  CommunicatorIds ids;
  EXPECT_EQ(ids.used()[kMessageChannels], 1) << "no communicator may have this id";
  EXPECT_EQ(ids.stage_of({7, 3}), Stage::kNotMade);
  ids.take({7, 3});
  EXPECT_EQ(ids.stage_of({7, 3}), Stage::kInUse);
  EXPECT_EQ(ids.stage_of({7, 4}), Stage::kNotMade);
  ids.release(7);
  EXPECT_EQ(ids.stage_of({7, 3}), Stage::kReleased);
  ids.take({7, 5});
  EXPECT_EQ(ids.stage_of({7, 3}), Stage::kReleased);
  EXPECT_EQ(ids.generation_of(7), 5U);
}

}  // namespace
}  // namespace farandole
