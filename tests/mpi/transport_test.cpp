// SPDX-License-Identifier: Apache-2.0
// The MPI transport, on as many processes as the launcher starts.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "farandole/core/error.h"
#include "mpi_job.h"

namespace farandole::mpi {
namespace {

TEST(MpiTagLayout, GivesEveryChannelItsOwnTag) {
  const TagLayout layout(3, 1 << 20);
  std::set<int> tags;
  std::size_t channels = 0;
  for (const int communicator : {0, 1, 2047, kMaxCommunicators - 1}) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int source = 0; source < 3; ++source) {
        for (int target = 0; target < 3; ++target, ++channels) {
          tags.insert(layout.pack({static_cast<std::uint16_t>(communicator), static_cast<std::uint8_t>(lane), 0, 0},
                                  source, target));
        }
      }
    }
  }
  EXPECT_EQ(tags.size(), channels);
  EXPECT_GE(*tags.begin(), 0);
  EXPECT_LT(*tags.rbegin(), 1 << 18);
}

TEST(MpiTagLayout, RefusesAnMpiWithTooFewTags) {
  EXPECT_NO_THROW(TagLayout(1, 32767));
  EXPECT_THROW(TagLayout(2, 32767), Unsupported);
  EXPECT_NO_THROW(TagLayout(kMaxReplicas, (1 << 26) - 1));
  EXPECT_THROW(TagLayout(kMaxReplicas, (1 << 26) - 2), Unsupported);
}

TEST(MpiTransport, DeliversMessagesOfOneChannelInOrder) {
  const Ring ring(*group);
  constexpr int kMessages = 200;
  std::vector<int> outgoing(kMessages);
  std::vector<int> incoming(kMessages, -1);
  std::iota(outgoing.begin(), outgoing.end(), ring.me * 1000);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < kMessages; ++i) {
    transfers.push_back(group->transport().send({1, 0, ring.me, ring.next}, &outgoing[i], sizeof(int)));
    transfers.push_back(group->transport().recv({1, 0, ring.previous, ring.me}, &incoming[i], sizeof(int)));
  }
  for (const auto& transfer : transfers) finish(*transfer, "message in order");
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(incoming[static_cast<std::size_t>(i)], ring.previous * 1000 + i);
}

TEST(MpiTransport, KeepsChannelsApart) {
  const Ring ring(*group);
  std::vector<Channel> channels;  // of what this process sends
  for (const int communicator : {0, 1, kMaxCommunicators - 1}) {
    for (const int lane : {0, kLanes - 1}) {
      for (int pair = 0; pair < kReplicas * kReplicas; ++pair) {
        channels.push_back({static_cast<std::uint16_t>(communicator), static_cast<std::uint8_t>(lane),
                            ring.me + pair / kReplicas, ring.next + pair % kReplicas});
      }
    }
  }
  std::vector<int> outgoing(channels.size());
  std::vector<int> incoming(channels.size(), -1);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    outgoing[i] = ring.me * 1000 + static_cast<int>(i);
    transfers.push_back(group->transport().send(channels[i], &outgoing[i], sizeof(int)));
  }
  // In the opposite order, so that only the tag can bring a message to its receive.
  for (std::size_t i = channels.size(); i-- > 0;) {
    const Channel from{channels[i].communicator, channels[i].lane, channels[i].source - ring.me + ring.previous,
                       channels[i].target - ring.next + ring.me};
    transfers.push_back(group->transport().recv(from, &incoming[i], sizeof(int)));
  }
  for (const auto& transfer : transfers) finish(*transfer, "message of its channel");
  for (std::size_t i = 0; i < channels.size(); ++i) EXPECT_EQ(incoming[i], ring.previous * 1000 + static_cast<int>(i));
}

TEST(MpiTransport, RefusesChannelsThatDoNotExist) {
  int value = 0;
  EXPECT_THROW(group->transport().send({0, kLanes, 0, 0}, &value, 4), InternalError);
  EXPECT_THROW(group->transport().recv({kMaxCommunicators, 0, 0, 0}, &value, 4), InternalError);
  EXPECT_THROW(group->transport().send({0, 0, 0, group->process_count() * kReplicas}, &value, 4), InternalError);
}

TEST(MpiTransport, CutsLongMessagesIntoParts) {
  for (const std::size_t bytes : {1U, 999U, 1000U, 1001U, 2000U, 12345U, 300000U}) exchange(*group, 1, bytes, 5);
}

TEST(MpiTransport, SendsEmptyMessages) {
  const Ring ring(*group);
  const auto receive = group->transport().recv({2, 0, ring.previous, ring.me}, nullptr, 0);
  EXPECT_FALSE(receive->test()) << "nothing was sent yet";
  barrier();
  const auto send = group->transport().send({2, 0, ring.me, ring.next}, nullptr, 0);
  finish(*receive, "empty receive");
  finish(*send, "empty send");
  EXPECT_TRUE(receive->test()) << "stays complete";
}

TEST(MpiTransport, TakesMessagesOfUnknownLength) {
  const Ring ring(*group);
  const auto outgoing = pattern(500, 3);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, outgoing.size()}) {
    std::vector<unsigned char> incoming(700, 0xAB);
    const auto receive = group->transport().recv_up_to({3, 1, ring.previous, ring.me}, incoming.data(), 700);
    const auto send = group->transport().send({3, 1, ring.me, ring.next}, outgoing.data(), bytes);
    finish(*receive, "receive of unknown length");
    finish(*send, "send");
    EXPECT_EQ(receive->received_bytes(), bytes);
    EXPECT_TRUE(std::equal(outgoing.begin(), outgoing.begin() + static_cast<std::ptrdiff_t>(bytes), incoming.begin()));
    EXPECT_EQ(incoming[bytes], 0xAB);
  }
}

TEST(MpiTransport, ReportsMessagesOfAnotherSize) {
  const Ring ring(*group);
  const std::vector<char> outgoing(3000);
  std::vector<char> incoming(3000);
  struct Case {
    std::size_t sent, expected;
    const char* came;
  };
  for (const Case& each :
       {Case{60, 100, ": 60 bytes came"}, Case{120, 100, ": more came"}, Case{1500, 1700, ": 1500 bytes came"}}) {
    // A message that is too long is reported by MPI: to the program's own handler if it has initialised MPI, and not at
    // all by Open MPI within one process.
    if (each.sent == 120 && (thread_level >= 0 || group->process_count() == 1)) continue;
    const auto receive = group->transport().recv({3, 2, ring.previous, ring.me}, incoming.data(), each.expected);
    const auto send = group->transport().send({3, 2, ring.me, ring.next}, outgoing.data(), each.sent);
    try {
      finish(*receive, "receive of another size");
      ADD_FAILURE() << "received " << each.sent << " bytes where " << each.expected << " were expected";
    } catch (const TransportError& error) {
      EXPECT_NE(std::string(error.what()).find(each.came), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("communicator 3, lane 2"), std::string::npos) << error.what();
    }
    finish(*send, "send of another size");
    barrier();
  }
}

TEST(MpiTransport, WithdrawsReceives) {
  const Ring ring(*group);
  std::vector<unsigned char> untouched(5000, 0xAB);
  group->transport().recv({4, 0, ring.previous, ring.me}, untouched.data(), untouched.size()).reset();
  barrier();
  const auto outgoing = pattern(5000, 1);
  std::vector<unsigned char> incoming(5000);
  const auto send = group->transport().send({4, 0, ring.me, ring.next}, outgoing.data(), outgoing.size());
  const auto receive = group->transport().recv({4, 0, ring.previous, ring.me}, incoming.data(), incoming.size());
  finish(*receive, "receive after a withdrawn one");
  finish(*send, "send after a withdrawn receive");
  EXPECT_EQ(incoming, outgoing);
  EXPECT_EQ(untouched, std::vector<unsigned char>(5000, 0xAB));
}

TEST(MpiTransport, WorksFromManyThreads) {
  if (group->thread_use() == ThreadUse::kMainThreadOnly) GTEST_SKIP() << group->thread_advice();
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kLanes; ++lane) {
    threads.emplace_back([lane] {
      for (unsigned turn = 0; turn < 50; ++turn)
        exchange(*group, static_cast<std::uint8_t>(lane), 10 + turn * 61, turn);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace farandole::mpi
