// SPDX-License-Identifier: Apache-2.0
// Connections between processes, established on first use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "tcp/stream.h"
#include "tcp_job.h"
#include "tcp_slots.h"

namespace farandole::tcp {
namespace {

/// Sends a number from each to the other, and compares.
void exchange(TcpJob& job, int one, int other, Traffic traffic = Traffic::kShort) {
  const std::int64_t sent[2] = {100 + one, 100 + other};
  std::int64_t came[2] = {};
  auto send_one = job[one].link(other, traffic).send(1, &sent[0], sizeof sent[0]);
  auto send_other = job[other].link(one, traffic).send(1, &sent[1], sizeof sent[1]);
  auto recv_one = job[one].link(other, traffic).recv(1, &came[0], sizeof came[0]);
  auto recv_other = job[other].link(one, traffic).recv(1, &came[1], sizeof came[1]);
  EXPECT_TRUE(job.until([&] { return send_one.test() && send_other.test() && recv_one.test() && recv_other.test(); }));
  EXPECT_EQ(came[0], sent[1]);
  EXPECT_EQ(came[1], sent[0]);
}

UniqueDescriptor call_as_stranger(const TcpNetwork& network) {
  return start_connect(network.listens_at().addresses.front(), std::nullopt, Seconds(60));
}

TEST(TcpNetwork, AConnectionIsMadeWhenItIsFirstUsed) {
  TcpJob job(3);
  for (int p = 0; p < 3; ++p) EXPECT_EQ(job[p].connections(), 0);
  EXPECT_EQ(job[0].find(1), nullptr);
  exchange(job, 0, 1);
  EXPECT_EQ(job[0].connections(), 1);
  EXPECT_EQ(job[1].connections(), 1);
  EXPECT_EQ(job[2].connections(), 0);
  EXPECT_EQ(job[0].describe(), "connections: 1 of 2 peers");
}

TEST(TcpNetwork, MessagesSentBeforeConnectingAreDelivered) {
  TcpJob job(2);
  const std::int64_t sent = 5;
  std::int64_t came = 0;
  const auto send = job[0].link(1).send(1, &sent, sizeof sent);
  auto recv = job[1].link(0).recv(1, &came, sizeof came);
  // The sender waits for something else, and does not look at its message.
  EXPECT_TRUE(job.until([&] { return recv.test(); }));
  EXPECT_EQ(came, sent);
}

TEST(TcpNetwork, FullSocketDrainsWhileSenderWaitsForAnotherPeer) {
  TcpJob job(3);
  ASSERT_TRUE(job.connect(0, 1));
  const std::vector<std::int64_t> sent(std::size_t{4} << 20, 5);  // 32 MiB: more than sockets hold
  std::vector<std::int64_t> came(sent.size());
  const auto send = job[0].link(1).send(1, sent.data(), sent.size() * sizeof sent[0]);
  auto recv = job[1].link(0).recv(1, came.data(), came.size() * sizeof came[0]);
  std::int64_t never = 0;
  auto awaited = job[0].link(2).recv(1, &never, sizeof never);
  EXPECT_TRUE(job.until([&] { return awaited.test() || recv.test(); }));
  EXPECT_EQ(came, sent);
}

TEST(TcpNetwork, TheHigherProcessMayCallAsWell) {
  TcpJob job(2);
  const std::int64_t sent = 5;
  auto send = job[1].link(0).send(1, &sent, sizeof sent);
  std::int64_t came = 0;
  ASSERT_TRUE(job.until([&] { return send.test() && job[0].is_connected(1); }));
  auto recv = job[0].link(1).recv(1, &came, sizeof came);
  EXPECT_TRUE(job.until([&] { return recv.test(); }));
  EXPECT_EQ(came, sent);
}

TEST(TcpNetwork, SimultaneousConnectKeepsOneConnection) {
  for (int times = 0; times < 50; ++times) {
    TcpJob job(2);
    job[times % 2].link(1 - times % 2);
    job[1 - times % 2].link(times % 2);
    exchange(job, 0, 1);
    EXPECT_EQ(job[0].connections(), 1);
    EXPECT_EQ(job[1].connections(), 1);
  }
}

/// True if this process has a socket at that port of its own.
bool has_socket_at(std::uint16_t port) {
  constexpr int kMaxDescriptors = 1024;
  for (int descriptor = 0; descriptor < kMaxDescriptors; ++descriptor) {
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto& address = reinterpret_cast<sockaddr&>(own);
    if (getsockname(descriptor, &address, &length) != 0) continue;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) continue;
    if (from_sockaddr(address).port == port) return true;
  }
  return false;
}

// A child that kept the sockets would hide the end of its parent from the peers.
TEST(TcpNetwork, AForkedChildLetsGoThoughAnotherThreadIsAtWork) {
  std::atomic<bool> is_at_work{false};
  std::atomic<bool> is_about_to_fork{false};
  TcpNetwork::Options options;
  options.processes = 2;
  options.interface = "127.0.0.0/8";
  options.name = [&](int) {
    is_at_work = true;
    while (!is_about_to_fork) std::this_thread::yield();
    // So long that a fork which does not wait finds this thread here.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return "process 1";
  };
  TcpNetwork network(options);
  const std::uint16_t port = network.listens_at().addresses.front().port;
  EXPECT_TRUE(has_socket_at(port));
  std::thread other([&network] { network.link(1); });
  while (!is_at_work) std::this_thread::yield();
  is_about_to_fork = true;
  const pid_t child = fork();
  if (child == 0) _exit(has_socket_at(port) ? 1 : 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child has kept the socket";
  other.join();
  EXPECT_TRUE(has_socket_at(port));
}

// Models a network in which only the higher process can reach the lower process.
TEST(TcpNetwork, ACallThatDoesNotGetThroughLeavesTheWayToThePeers) {
  TcpJob job(2);
  const FullPort full;
  ListenAddresses unreachable;
  unreachable.addresses[0] = full.address();
  job[0].set_addresses(1, unreachable);
  job[0].link(1);
  Handshake peers = Handshake::initiate(start_connect(job[0].listens_at().addresses.front(), std::nullopt, Seconds(60)),
                                        job.key(), {7, 1, 2, 0, Purpose::kMessages, 0}, 0);
  ASSERT_TRUE(job.until([&] { return peers.advance() != Handshake::State::kUnderway; }));
  EXPECT_EQ(peers.state(), Handshake::State::kDone) << static_cast<int>(peers.verdict()) << ' ' << peers.problem();
  EXPECT_TRUE(job.until([&] { return job[0].is_connected(1); }));
}

TEST(TcpNetwork, LongTrafficHasAConnectionOfItsOwn) {
  TcpJob job(2);
  exchange(job, 0, 1);
  EXPECT_EQ(job[0].find(1, Traffic::kLong), nullptr) << "nothing long has been sent";
  exchange(job, 0, 1, Traffic::kLong);
  EXPECT_NE(job[0].find(1, Traffic::kLong), job[0].find(1));
  for (int p = 0; p < 2; ++p) {
    EXPECT_EQ(job[p].connections(), 1);
    EXPECT_EQ(job[p].connections(Traffic::kLong), 1);
  }
  EXPECT_EQ(job[0].describe(), "connections: 1 of 1 peers, 1 for long vectors");
}

TEST(TcpNetwork, BothConnectionsMayBeMadeAtOnce) {
  for (int times = 0; times < 50; ++times) {
    TcpJob job(2);
    for (const Traffic traffic : {Traffic::kLong, Traffic::kShort}) {
      job[times % 2].link(1 - times % 2, traffic);
      job[1 - times % 2].link(times % 2, traffic);
    }
    exchange(job, 0, 1, Traffic::kLong);
    exchange(job, 0, 1);
    EXPECT_EQ(job[0].connections(Traffic::kLong), 1);
    EXPECT_EQ(job[1].connections(Traffic::kLong), 1);
  }
}

TEST(TcpNetwork, EndedPeerIsLostBeforeTheSecondConnection) {
  TcpJob job(2);
  exchange(job, 0, 1);
  job.end(1);
  job[0].link(1, Traffic::kLong);
  ASSERT_TRUE(job.until([&] { return !job[0].loss_reason(1, Traffic::kLong).empty(); }));
  EXPECT_EQ(job[0].loss_reason(1, Traffic::kLong), "it closed the connection");
}

// The end of one connection may overtake messages of the other connection.
TEST(TcpNetwork, AConnectionIsNotLostWithTheOther) {
  TcpJob job(2);
  exchange(job, 0, 1);
  exchange(job, 0, 1, Traffic::kLong);
  ASSERT_EQ(shutdown(job[1].find(0)->descriptor(), SHUT_RDWR), 0);
  ASSERT_TRUE(job.until([&] { return !job[0].loss_reason(1).empty(); }));
  EXPECT_EQ(job[0].loss_reason(1, Traffic::kLong), "");
  job.end(1);
  EXPECT_TRUE(job.until([&] { return !job[0].loss_reason(1, Traffic::kLong).empty(); }));
}

TEST(TcpNetwork, NonexistentConnectionIsRefused) {
  TcpJob job(2);
  Introduction caller{7, 0, 2, 0, Purpose::kMessages, /*connection=*/kTraffics};
  Handshake handshake = Handshake::initiate(
      start_connect(job[1].listens_at().addresses.front(), std::nullopt, Seconds(60)), job.key(), caller, 1);
  ASSERT_TRUE(job.until([&] { return handshake.advance() == Handshake::State::kRefused; }));
  EXPECT_EQ(handshake.verdict(), Verdict::kMisfit);
}

TEST(TcpNetwork, GoesByIpVersion6AsWell) {
  TcpJob job(2, "::1/128");
  exchange(job, 0, 1);
}

TEST(TcpNetwork, AProcessWithoutAChoiceListensAtAllItsAddresses) {
  TcpJob job(2, "");
  exchange(job, 0, 1);
}

TEST(TcpNetwork, ThreadsMayUseItTogether) {
  constexpr int kProcesses = 5;
  TcpJob job(kProcesses);
  std::vector<std::thread> threads;
  for (int me = 0; me < kProcesses; ++me) {
    threads.emplace_back([&job, me] {
      const std::int64_t sent = 100 + me;
      std::vector<std::int64_t> came(kProcesses);
      std::vector<sockets::Sending> sends;
      std::vector<sockets::Receiving> receives;
      for (int p = 0; p < kProcesses; ++p) {
        if (p == me) continue;
        sends.push_back(job[me].link(p).send(1, &sent, sizeof sent));
        receives.push_back(job[me].link(p).recv(1, &came[static_cast<std::size_t>(p)], sizeof sent));
      }
      const auto finish = [&](auto& transfer) {
        const Deadline deadline = Deadline::after(std::chrono::seconds(20));
        while (!transfer.test() && !deadline.passed()) {
          job[me].advance();
          std::this_thread::yield();
        }
        EXPECT_TRUE(transfer.test());
      };
      for (auto& each : sends) finish(each);
      for (auto& each : receives) finish(each);
      for (int p = 0; p < kProcesses; ++p) {
        if (p != me) {
          EXPECT_EQ(came[static_cast<std::size_t>(p)], 100 + p);
        }
      }
      // A process that is done here still answers the calls of the others.
      while (job[me].connections() < kProcesses - 1) job[me].advance();
    });
  }
  for (std::thread& each : threads) each.join();
  for (int p = 0; p < kProcesses; ++p) EXPECT_EQ(job[p].connections(), kProcesses - 1);
}

TEST(TcpNetwork, StrangersAreDroppedAndCountedWhileTheJobGoesOn) {
  TcpJob job(2);
  const UniqueDescriptor garbage = call_as_stranger(job[1]);
  const std::string request = "GET / HTTP/1.1\r\n" + std::string(200, 'x');
  ASSERT_TRUE(job.until([&] { return send(garbage.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0; }));
  const auto other_job = job.make(0, 2, make_job_key());
  other_job->set_addresses(1, job[1].listens_at());
  other_job->link(1);
  ASSERT_TRUE(job.until([&] {
    other_job->advance();
    return job[1].strangers() >= 2;
  }));
  EXPECT_FALSE(other_job->is_connected(1));
  exchange(job, 0, 1);
}

TEST(TcpNetwork, SilentStrangersInAnyNumberKeepNobodyOut) {
  TcpJob job(2);
  std::vector<UniqueDescriptor> silent;
  for (std::size_t i = 0; i < 3 * Acceptor::kMaxPending; ++i) {
    silent.push_back(call_as_stranger(job[1]));
    job[1].advance();
  }
  exchange(job, 0, 1);
  EXPECT_TRUE(job.until([&] { return job[1].strangers() >= 2 * Acceptor::kMaxPending - 1; }));
}

TEST(TcpNetwork, ALostConnectionIsKnownToBeSo) {
  TcpJob job(2);
  exchange(job, 0, 1);
  EXPECT_EQ(job[0].loss_reason(1), "");
  job.end(1);
  EXPECT_TRUE(job.until([&] { return !job[0].loss_reason(1).empty(); }));
  EXPECT_EQ(job[0].unreachable_reason(1), "") << "the process itself has ended";
}

TEST(TcpNetwork, AProcessThatHasEndedBeforeTheFirstUseIsLost) {
  TcpJob job(2);
  job.end(1);
  job[0].link(1);
  ASSERT_TRUE(job.until([&] { return !job[0].loss_reason(1).empty(); }));
  EXPECT_THAT(job[0].loss_reason(1), testing::HasSubstr("does not listen any more"));
  EXPECT_EQ(job[0].unreachable_reason(1), "");
}

TEST(TcpNetwork, NoConnectionWithinThePeerTimeoutIsALoss) {
  TcpJob job(2, "127.0.0.0/8", Seconds(0.5));
  // It has another key, so that no handshake succeeds.
  const auto other_job = job.make(1, 2, make_job_key());
  job[0].set_addresses(1, other_job->listens_at());
  job[0].link(1);
  ASSERT_TRUE(job.until([&] {
    other_job->advance();
    return !job[0].loss_reason(1).empty();
  }));
  EXPECT_THAT(job[0].loss_reason(1), testing::HasSubstr("FARANDOLE_PEER_TIMEOUT"));
  EXPECT_EQ(job[0].unreachable_reason(1), job[0].loss_reason(1));
}

// The peer has confirmed a call of its own, and the connection was lost before that came.
TEST(TcpNetwork, HalfOpenConnectionIsALoss) {
  TcpJob job(2, "127.0.0.0/8", Seconds(0.5));
  UniqueDescriptor listener = listen_at(host_address(0));
  ListenAddresses peers;
  peers.addresses[0] = host_address(port_of(listener));
  Acceptor peer(std::move(listener), job.key(), {7, 1, 2, 0, Purpose::kMessages, 0}, Seconds(60));
  job[0].set_addresses(1, peers);
  job[0].link(1);
  ASSERT_TRUE(job.until([&] {
    peer.advance([](const Introduction&) { return Verdict::kTaken; }, [](const Introduction&, UniqueDescriptor) {});
    return !job[0].loss_reason(1).empty();
  }));
  EXPECT_THAT(job[0].loss_reason(1), testing::HasSubstr("it says that it has a connection with this process"));
}

TEST(TcpNetwork, TriesThePeersAddressesOneAfterTheOther) {
  TcpJob job(2);
  ListenAddresses several;
  several.addresses[0] = job[0].listens_at().addresses.front();  // its own
  several.addresses[1] = job[1].listens_at().addresses.front();
  job[0].set_addresses(1, several);
  exchange(job, 0, 1);
}

TEST(TcpNetwork, AddressesMayComeAfterTheFirstUse) {
  TcpJob job(2);
  const auto late = job.make(0, 2, job.key());
  const std::int64_t sent = 9;
  auto send = late->link(1).send(1, &sent, sizeof sent);
  late->advance();
  EXPECT_FALSE(send.test());
  late->set_addresses(1, job[1].listens_at());
  EXPECT_TRUE(job.until([&] {
    late->advance();
    return send.test();
  }));
}

TEST(TcpNetwork, ProcessesOfJobsOfDifferentSizesDoNotConnect) {
  TcpJob job(2);
  const auto larger = job.make(0, 3, job.key());
  larger->set_addresses(1, job[1].listens_at());
  larger->link(1);
  ASSERT_TRUE(job.until([&] {
    larger->advance();
    return larger->connect_failure(1) != "it does not answer";
  }));
  EXPECT_THAT(larger->connect_failure(1), testing::EndsWith(": it has another number of processes"));
  EXPECT_EQ(job[1].connections(), 0);
}

}  // namespace
}  // namespace farandole::tcp
