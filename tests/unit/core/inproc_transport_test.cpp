// SPDX-License-Identifier: Apache-2.0
#include "inproc/inproc_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "farandole/core/error.h"

namespace farandole {
namespace {

Channel channel(int source, int target, int lane = 0) {
  return {7, static_cast<std::uint8_t>(lane), source, target};
}

class InprocTransportTest : public testing::Test {
 protected:
  std::atomic<int> rings_{0};
  InprocTransport transport_{10, 3, [this](int) { ++rings_; }};
};

TEST_F(InprocTransportTest, ASendCompletesWhenItHasBeenReceived) {
  const std::vector<int> out{1, 2, 3};
  std::vector<int> in(3);
  const auto send = transport_.send(channel(10, 11), out.data(), 12);
  EXPECT_FALSE(send->test());
  const auto receive = transport_.recv(channel(10, 11), in.data(), 12);
  EXPECT_TRUE(receive->test());
  EXPECT_TRUE(send->test());
  EXPECT_EQ(in, out);
  EXPECT_EQ(rings_, 2) << "once for the target, once for the source";
}

TEST_F(InprocTransportTest, ChannelsKeepOrderAndAreSeparate) {
  const int values[] = {1, 2, 3};
  int first = 0, second = 0, other = 0;
  const auto receive_first = transport_.recv(channel(10, 11), &first, 4);
  const auto receive_second = transport_.recv(channel(10, 11), &second, 4);
  const auto receive_other = transport_.recv(channel(10, 11, 1), &other, 4);
  const auto send_other = transport_.send(channel(10, 11, 1), &values[2], 4);
  const auto send_first = transport_.send(channel(10, 11), &values[0], 4);
  EXPECT_FALSE(receive_second->test()) << "the front receiver comes first";
  EXPECT_TRUE(receive_first->test());
  EXPECT_FALSE(receive_second->test());
  const auto send_second = transport_.send(channel(10, 11), &values[1], 4);
  EXPECT_TRUE(receive_second->test());
  EXPECT_TRUE(receive_other->test());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  EXPECT_EQ(other, 3);
}

TEST_F(InprocTransportTest, AMessageOfUnknownLengthIsTakenIfThereIsRoom) {
  const std::vector<int> out{1, 2, 3};
  std::vector<int> in(4, 9);
  const auto send = transport_.send(channel(10, 11), out.data(), 12);
  const auto receive = transport_.recv_up_to(channel(10, 11), in.data(), 16);
  EXPECT_TRUE(receive->test());
  EXPECT_EQ(receive->received_bytes(), 12U);
  EXPECT_EQ(in, (std::vector<int>{1, 2, 3, 9}));
  const auto longer = transport_.send(channel(10, 11), out.data(), 12);
  const auto without_room = transport_.recv_up_to(channel(10, 11), in.data(), 8);
  EXPECT_THROW(without_room->test(), TransportError);
}

TEST_F(InprocTransportTest, ReceivesAndReducesInOnePass) {
  const std::vector<float> out{1, 2}, operand{10, 20};
  std::vector<float> result(2);
  const auto send = transport_.send(channel(12, 10), out.data(), 8);
  const auto receive =
      transport_.recv_reduce(channel(12, 10), result.data(), operand.data(), 2, DType::kF32, ReduceOp::kSum);
  EXPECT_TRUE(receive->test());
  EXPECT_EQ(result, (std::vector<float>{11, 22}));
}

TEST_F(InprocTransportTest, WithdrawnMessagesAreNotSeen) {
  const int gone = 1, stays = 2;
  int got = 0, unused = 0;
  transport_.send(channel(10, 11), &gone, 4).reset();
  transport_.recv(channel(10, 11), &unused, 4).reset();
  const auto send = transport_.send(channel(10, 11), &stays, 4);
  const auto receive = transport_.recv(channel(10, 11), &got, 4);
  EXPECT_TRUE(receive->test());
  EXPECT_EQ(got, 2);
}

TEST_F(InprocTransportTest, AnotherLengthThanExpectedIsAnError) {
  const int out[2] = {};
  int in = 0;
  const auto send = transport_.send(channel(10, 11), out, 8);
  const auto receive = transport_.recv(channel(10, 11), &in, 4);
  try {
    receive->test();
    FAIL() << "no exception";
  } catch (const TransportError& error) {
    EXPECT_STREQ(error.message(), "rank 11 expected a message of 4 bytes from rank 10 and got one of 8 bytes");
  }
}

TEST_F(InprocTransportTest, ManyMessagesBetweenThreads) {
  constexpr int kMessages = 5000;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      const auto send = transport_.send(channel(10, 11), &i, 4);
      while (!send->test()) std::this_thread::yield();
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    int in = -1;
    const auto receive = transport_.recv(channel(10, 11), &in, 4);
    while (!receive->test()) std::this_thread::yield();
    ASSERT_EQ(in, i);
  }
  sender.join();
}

}  // namespace
}  // namespace farandole
