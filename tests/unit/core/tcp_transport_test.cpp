// SPDX-License-Identifier: Apache-2.0
// Messages between ranks over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "tcp/stream.h"
#include "tcp/tcp_transport.h"
#include "tcp_job.h"

namespace farandole::tcp {
namespace {

/// Processes of one host each, with two ranks each.
class TransportJob {
 public:
  explicit TransportJob(int processes, Seconds peer_timeout = Seconds(60))
      : job(processes, "127.0.0.0/8", peer_timeout) {
    std::vector<ProcessInfo> infos;
    for (int p = 0; p < processes; ++p) infos.push_back({p, 2, 1000 + p, "node" + std::to_string(p)});
    topology.emplace(infos);
    for (int p = 0; p < processes; ++p) {
      transports.push_back(std::make_unique<TcpTransport>(job[p]));
      transports.back()->set_topology(*topology);
    }
  }
  Transport& of(int rank) { return *transports[static_cast<std::size_t>(rank / 2)]; }
  std::unique_ptr<Transfer> send(const Channel& channel, const void* data, std::size_t bytes) {
    return of(channel.source).send(channel, data, bytes);
  }
  std::unique_ptr<Transfer> recv(const Channel& channel, void* data, std::size_t bytes) {
    return of(channel.target).recv(channel, data, bytes);
  }
  void finish(const std::vector<std::unique_ptr<Transfer>>& transfers) {
    std::size_t done = 0;
    EXPECT_TRUE(job.until([&] {
      // All of them are tested: each end lives in this thread.
      done = 0;
      for (const auto& each : transfers) done += each->test() ? 1 : 0;
      return done == transfers.size();
    }));
  }
  template <class... Each>
  void finish(std::unique_ptr<Transfer>& first, Each&... more) {
    EXPECT_TRUE(job.until([&] {
      bool all = first->test();
      ((all = more->test() && all), ...);
      return all;
    }));
  }

  TcpJob job;
  std::optional<Topology> topology;
  std::vector<std::unique_ptr<TcpTransport>> transports;
};

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + seed);
  return data;
}

TEST(TcpTransport, MessagesOfAChannelArriveInOrder) {
  TransportJob job(2);
  std::vector<int> sent(200), came(200, -1);
  std::iota(sent.begin(), sent.end(), 1000);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    transfers.push_back(job.send({1, 0, 0, 2}, &sent[i], sizeof(int)));
    transfers.push_back(job.recv({1, 0, 0, 2}, &came[i], sizeof(int)));
  }
  job.finish(transfers);
  EXPECT_EQ(came, sent);
}

TEST(TcpTransport, ChannelsAreKeptApart) {
  TransportJob job(2);
  std::vector<Channel> channels;
  for (const std::uint16_t communicator : {0, 1, kMaxCommunicators - 1}) {
    for (const std::uint8_t lane : {0, kLanes - 1}) {
      for (int pair = 0; pair < 4; ++pair) channels.push_back({communicator, lane, pair / 2, 2 + pair % 2});
    }
  }
  std::vector<int> sent(channels.size()), came(channels.size(), -1);
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < channels.size(); ++i) transfers.push_back(job.send(channels[i], &sent[i], sizeof(int)));
  for (std::size_t i = channels.size(); i-- > 0;) transfers.push_back(job.recv(channels[i], &came[i], sizeof(int)));
  job.finish(transfers);
  EXPECT_EQ(came, sent);
}

TEST(TcpTransport, MessagesOfAnyLengthArriveWhole) {
  TransportJob job(2);
  std::uint64_t total = 0;
  for (const std::size_t bytes : {0UL, 1UL, 4096UL, 262'143UL, 262'145UL, 5'000'000UL}) {
    const auto up = pattern(bytes, 3), down = pattern(bytes, 4);
    std::vector<std::uint8_t> came_up(bytes), came_down(bytes);
    auto send_up = job.send({2, 1, 0, 3}, up.data(), bytes);
    auto send_down = job.send({2, 1, 3, 0}, down.data(), bytes);
    auto recv_up = job.recv({2, 1, 0, 3}, came_up.data(), bytes);
    auto recv_down = job.recv({2, 1, 3, 0}, came_down.data(), bytes);
    job.finish(send_up, send_down, recv_up, recv_down);
    EXPECT_EQ(came_up, up);
    EXPECT_EQ(came_down, down);
    total += bytes;
  }
  EXPECT_EQ(job.of(0).sent_bytes(), total);
}

TEST(TcpTransport, UnknownLengthMayBeShorterButNotLonger) {
  TransportJob job(2);
  const auto sent = pattern(100, 1);
  std::vector<std::uint8_t> came(200);
  auto send = job.send({1, 0, 0, 2}, sent.data(), sent.size());
  auto recv = job.of(2).recv_up_to({1, 0, 0, 2}, came.data(), came.size());
  job.finish(send, recv);
  EXPECT_EQ(recv->received_bytes(), sent.size());
  auto longer = job.send({1, 0, 0, 2}, sent.data(), sent.size());
  auto short_of_it = job.of(2).recv_up_to({1, 0, 0, 2}, came.data(), 50);
  EXPECT_THAT(test::message_of<TransportError>([&] { job.finish(longer, short_of_it); }),
              testing::HasSubstr("100 bytes came"));
}

TEST(TcpTransport, AnotherLengthThanTheReceiversIsAnError) {
  TransportJob job(2);
  const int sent[2] = {1, 2};
  int came = 0;
  auto send = job.send({1, 0, 0, 2}, sent, sizeof sent);
  auto recv = job.recv({1, 0, 0, 2}, &came, sizeof came);
  EXPECT_THAT(test::message_of<TransportError>([&] { job.finish(send, recv); }),
              testing::HasSubstr("receive of 4 bytes from rank 0 to rank 2"));
}

TEST(TcpTransport, ReducesArrivingData) {
  TransportJob job(2);
  ASSERT_TRUE(job.of(0).fuses_reduction());
  constexpr std::size_t kCount = 300'001;
  std::vector<float> sent(kCount), own(kCount), out(kCount);
  for (std::size_t i = 0; i < kCount; ++i) sent[i] = static_cast<float>(i % 1000), own[i] = 0.5F;
  auto send = job.send({1, 0, 1, 2}, sent.data(), kCount * sizeof(float));
  auto recv = job.of(2).recv_reduce({1, 0, 1, 2}, out.data(), own.data(), kCount, DType::kF32, ReduceOp::kSum);
  job.finish(send, recv);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(out[i], sent[i] + 0.5F) << i;
}

TEST(TcpTransport, SeesWhetherAMessageHasArrived) {
  TransportJob job(2);
  const int sent = 5;
  int came = 0;
  EXPECT_FALSE(job.of(2).has_arrived(1, 0, 2));
  auto send = job.send({1, 0, 1, 2}, &sent, sizeof sent);
  EXPECT_TRUE(job.job.until([&] { return send->test() && job.of(2).has_arrived(1, 0, 2); }));
  EXPECT_FALSE(job.of(2).has_arrived(1, 1, 2)) << "another lane";
  EXPECT_FALSE(job.of(2).has_arrived(1, 0, 3)) << "another rank";
  auto recv = job.recv({1, 0, 1, 2}, &came, sizeof came);
  job.finish(recv);
  EXPECT_FALSE(job.of(2).has_arrived(1, 0, 2));
  auto send_long = job.send({1, 0, 1, 2, Traffic::kLong}, &sent, sizeof sent);
  EXPECT_TRUE(job.job.until([&] { return send_long->test() && job.of(2).has_arrived(1, 0, 2); }));
}

TEST(TcpTransport, ShortMessagesDoNotWaitForLongMessages) {
  TransportJob job(2);
  const auto long_sent = pattern(64 << 20, 5);
  std::vector<std::uint8_t> long_came(long_sent.size());
  const Channel long_channel{1, 0, 0, 2, Traffic::kLong};
  auto send_long = job.send(long_channel, long_sent.data(), long_sent.size());
  auto recv_long = job.recv(long_channel, long_came.data(), long_came.size());
  ASSERT_TRUE(job.job.until([&] { return job.job[1].is_connected(0, Traffic::kLong) && !send_long->test(); }));
  // Neither end polls the connection of long messages now.
  const int sent = 9;
  int came = 0;
  auto send = job.send({1, 0, 0, 2}, &sent, sizeof sent);
  auto recv = job.recv({1, 0, 0, 2}, &came, sizeof came);
  job.finish(send, recv);
  EXPECT_EQ(came, sent);
  EXPECT_FALSE(send_long->test());
  job.finish(send_long, recv_long);
  EXPECT_EQ(long_came, long_sent);
}

TEST(TcpTransport, AMessageThatIsWithdrawnDoesNoHarm) {
  TransportJob job(2);
  const auto dropped = pattern(3'000'000, 1), sent = pattern(1000, 2);
  std::vector<std::uint8_t> nowhere(dropped.size()), came(sent.size());
  { auto recv = job.recv({1, 0, 0, 2}, nowhere.data(), nowhere.size()); }
  { auto send = job.send({1, 0, 0, 2}, dropped.data(), dropped.size()); }
  EXPECT_EQ(nowhere, std::vector<std::uint8_t>(dropped.size()));
  auto send = job.send({1, 1, 0, 2}, sent.data(), sent.size());
  auto recv = job.recv({1, 1, 0, 2}, came.data(), came.size());
  job.finish(send, recv);
  EXPECT_EQ(came, sent);
}

TEST(TcpTransport, AMessageAwaitedFromAProcessThatHasEndedIsAPeerLost) {
  TransportJob job(2);
  ASSERT_TRUE(job.job.connect(0, 1));
  int came = 0;
  auto recv = job.recv({1, 0, 3, 0}, &came, sizeof came);
  EXPECT_FALSE(recv->test());
  job.job.end(1);
  const auto start = Clock::now();
  const std::string message = test::message_of<PeerLost>([&] { job.finish(recv); });
  EXPECT_THAT(message, testing::HasSubstr("rank 3 (host node1, pid 1001) is lost"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
}

TEST(TcpTransport, APeerThatDoesNotReadIsLateAndNotLost) {
  TransportJob job(2, Seconds(1));
  ASSERT_TRUE(job.job.connect(0, 1));
  const auto sent = pattern(64 << 20, 5);
  std::vector<std::uint8_t> came(sent.size());
  auto send = job.send({1, 0, 0, 2}, sent.data(), sent.size());
  for (const Deadline silence = Deadline::after(Seconds(2.5)); !silence.passed();) ASSERT_FALSE(send->test());
  auto recv = job.recv({1, 0, 0, 2}, came.data(), came.size());
  job.finish(send, recv);
  EXPECT_EQ(came, sent);
}

TEST(TcpTransport, MessagesSentBeforeTheEndAreDelivered) {
  TransportJob job(2);
  const int sent = 7;
  int came = 0;
  auto send = job.send({1, 0, 2, 0}, &sent, sizeof sent);
  ASSERT_TRUE(job.job.until([&] { return send->test(); }));
  send.reset();
  job.job.end(1);
  auto recv = job.recv({1, 0, 2, 0}, &came, sizeof came);
  job.finish(recv);
  EXPECT_EQ(came, sent);
}

TEST(TcpTransport, APeerThatBreaksTheProtocolIsNamed) {
  TransportJob job(2);
  // Process 1 with the right key, and nothing sensible to say.
  job.job.end(1);
  Handshake handshake =
      Handshake::initiate(start_connect(job.job[0].listens_at().addresses.front(), std::nullopt, Seconds(60)),
                          job.job.key(), {7, 1, 2, 0, Purpose::kMessages}, 0);
  ASSERT_TRUE(job.job.until([&] { return handshake.advance() == Handshake::State::kDone && job.job[0].find(1); }));
  const UniqueDescriptor socket = handshake.take_socket();
  int came = 0;
  auto recv = job.recv({1, 0, 2, 0}, &came, sizeof came);
  const std::string garbage(4096, '\xff');
  ASSERT_GT(send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_THAT(test::message_of<TransportError>([&] { job.finish(recv); }),
              testing::HasSubstr("rank 1 (host node1) has sent what no process of this job sends"));
}

TEST(TcpTransport, RefusesANonexistentChannel) {
  TransportJob job(2);
  int value = 0;
  EXPECT_THROW(job.of(0).send({1, 0, 0, 4}, &value, sizeof value), InternalError);
  EXPECT_THROW(job.of(0).send({1, 0, 0, 1}, &value, sizeof value), InternalError) << "a rank of the same process";
  EXPECT_THROW(job.of(0).recv({kMaxCommunicators, 0, 2, 0}, &value, sizeof value), InternalError);
  EXPECT_THROW(job.of(0).recv({1, kLanes, 2, 0}, &value, sizeof value), InternalError);
}

}  // namespace
}  // namespace farandole::tcp
