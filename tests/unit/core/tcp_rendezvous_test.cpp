// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job over TCP. Threads of this process stand for the job's processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <latch>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "message_of.h"
#include "sockets/binomial_tree.h"
#include "tcp/address.h"
#include "tcp/rendezvous.h"
#include "tcp/rendezvous_client.h"
#include "tcp/rendezvous_server.h"
#include "tcp/stream.h"
#include "tcp_slots.h"

namespace farandole::tcp {
namespace {

using test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// The network of a process, when all processes have met.
std::unique_ptr<TcpNetwork> met(const Slot& slot) {
  auto network = std::make_unique<TcpNetwork>(network_options(slot));
  meet(slot, *network);
  return network;
}

/// Each process connects with its neighbours in the tree, and with no other.
void expect_tree(const std::vector<std::unique_ptr<TcpNetwork>>& job) {
  const int processes = static_cast<int>(job.size());
  for (int p = 1; p < processes; ++p) {
    job[static_cast<std::size_t>(p)]->link(sockets::BinomialTree(p, processes).parent());
  }
  const auto are_connected = [&] {
    for (int p = 0; p < processes; ++p) {
      const auto neighbours = sockets::BinomialTree(p, processes).neighbours();
      if (job[static_cast<std::size_t>(p)]->connections() != static_cast<int>(neighbours.size())) return false;
    }
    return true;
  };
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!are_connected() && !deadline.passed()) {
    for (const auto& each : job) each->advance();
  }
  EXPECT_TRUE(are_connected());
  for (const auto& each : job) EXPECT_EQ(each->strangers(), 0U);
}

class TcpRendezvousOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Processes, TcpRendezvousOf, testing::Values(1, 2, 3, 5, 8, 64, 512));

TEST_P(TcpRendezvousOf, AllProcessesConnectToTheirNeighbours) {
  const SlotsOfJob slots(GetParam());
  expect_tree(side_by_side<std::unique_ptr<TcpNetwork>>(GetParam(), [&](int p) { return met(slots[p]); }));
}

TEST(TcpRendezvous, TheAddressMayBeSharedByTheLauncher) {
  SlotsOfJob slots(5);
  std::promise<std::string> shared;
  const std::shared_future<std::string> text = shared.get_future().share();
  expect_tree(side_by_side<std::unique_ptr<TcpNetwork>>(5, [&](int p) {
    Slot slot = slots[p];
    slot.rendezvous.clear();
    slot.share = [&](std::string_view of_process_0) {
      EXPECT_EQ(of_process_0.empty(), p != 0);
      if (p == 0) shared.set_value(std::string(of_process_0));
      return text.get();
    };
    return met(slot);
  }));
}

TEST(TcpRendezvous, ATakenPortIsLeftAlone) {
  const SlotsOfJob slots(3);
  // Like torchrun's store, this socket listens and sends nothing.
  const UniqueDescriptor store = listen_at(std::nullopt, slots.port());
  expect_tree(side_by_side<std::unique_ptr<TcpNetwork>>(3, [&](int p) { return met(slots[p]); }));
}

TEST(TcpRendezvous, WithoutAFreePortProcess0Fails) {
  SlotsOfJob slots(2);
  std::vector<UniqueDescriptor> taken;
  for (int more = 0; more <= kMorePorts; ++more) {
    try {
      taken.push_back(listen_at(std::nullopt, static_cast<std::uint16_t>(slots.port() + more)));
    } catch (const TransportError&) {
      // another program has it
    }
  }
  const std::string ports = fmt::format("none of the ports {} to {}", slots.port(), slots.port() + kMorePorts);
  EXPECT_THAT(message_of<TransportError>([&] { met(slots[0]); }),
              AllOf(HasSubstr(ports), HasSubstr("Address already in use"), HasSubstr("MASTER_PORT")));
}

TEST(TcpRendezvous, TheLaterProcessesMayComeFirst) {
  const SlotsOfJob slots(3);
  std::atomic<int> calling{0};
  expect_tree(side_by_side<std::unique_ptr<TcpNetwork>>(3, [&](int p) {
    auto network = std::make_unique<TcpNetwork>(network_options(slots[p]));
    if (p == 0) {
      while (calling < 2) std::this_thread::yield();
    }
    ++calling;
    meet(slots[p], *network);
    return network;
  }));
}

TEST(TcpRendezvous, MissingProcessesAreNamedToAllAtTheDeadline) {
  SlotsOfJob slots(8);
  slots.timeout = Seconds(0.6);
  const auto errors = side_by_side<std::string>(6, [&](int place) {
    const int process = place < 3 ? place : place + 1;  // all but 3 and 7
    return message_of<Timeout>([&] { met(slots[process]); });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("processes 3, 7 have not come"));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("process 0 of 8"), HasSubstr(slots[0].rendezvous)));
  EXPECT_THAT(errors[0], testing::Not(HasSubstr("does not listen")));
}

/// Process 0 runs on a host other than the host to which the processes connect.
TEST(TcpRendezvous, Process0ReportsAnAddressItDoesNotListenOn) {
  SlotsOfJob slots(2);
  slots.timeout = Seconds(0.3);
  const auto error_at = [&](const std::string& host, const std::string& interface) {
    Slot slot = slots[0];
    slot.rendezvous = fmt::format("{}:{}", host, slots.port());
    slot.interface = interface;
    return message_of<Timeout>([&] { met(slot); });
  };
  // An address for documentation (RFC 5737), which no host has.
  EXPECT_THAT(error_at("198.51.100.1", ""), HasSubstr("process 0 does not listen at 198.51.100.1, where"));
  EXPECT_THAT(error_at("[::1]", "127.0.0.0/8"), HasSubstr("process 0 does not listen at ::1, where"));
  EXPECT_THAT(error_at("no-such-host.invalid", ""),
              AllOf(HasSubstr("the host 'no-such-host.invalid' (of FARANDOLE_RENDEZVOUS, MASTER_ADDR) is not known")));
  EXPECT_THAT(error_at("127.0.0.1", ""),
              AllOf(HasSubstr("127.0.0.1 is this host itself"), HasSubstr("other hosts do not reach")));
}

TEST(TcpRendezvous, WithoutProcess0TheErrorNamesItsAddress) {
  SlotsOfJob slots(2);
  slots.timeout = Seconds(0.3);
  EXPECT_THAT(message_of<Timeout>([&] { met(slots[1]); }),
              AllOf(HasSubstr("process 1 of 2"), HasSubstr("process 0 does not answer"),
                    HasSubstr("127.0.0.1:" + std::to_string(slots.port())), HasSubstr("Connection refused")));
}

TEST(TcpRendezvous, DifferentJobSizesAreRefused) {
  const SlotsOfJob slots(3);
  const auto errors = side_by_side<std::string>(3, [&](int p) {
    Slot slot = slots[p];
    if (p == 2) slot.processes = 4;
    return message_of<InvalidArgument>([&] { met(slot); });
  });
  const std::string pid = std::to_string(getpid());
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("process 0 (host"), HasSubstr("as one of 3 processes"),
                             HasSubstr("process 2 (host"), HasSubstr("as one of 4"), HasSubstr("pid " + pid)));
  }
}

TEST(TcpRendezvous, ANumberIsTakenOnce) {
  for (const int twice : {0, 1}) {
    SlotsOfJob slots(4);
    slots.timeout = Seconds(20);
    const auto errors = side_by_side<std::string>(3, [&](int place) {
      const int process = place == 2 ? twice : place;
      return message_of<InvalidArgument>([&] { met(slots[process]); });
    });
    const auto shows_both = AllOf(HasSubstr("two processes have the number " + std::to_string(twice)),
                                  HasSubstr(" and process " + std::to_string(twice) + " (host"));
    EXPECT_THAT(errors, testing::Each(shows_both));
  }
}

/// The job has begun, and process 0 listens no more.
TEST(TcpRendezvous, TakenProcessNumberIsReportedAfterTheJobBegan) {
  SlotsOfJob slots(2);
  const auto job = side_by_side<std::unique_ptr<TcpNetwork>>(2, [&](int p) { return met(slots[p]); });
  slots.timeout = Seconds(0.3);
  EXPECT_THAT(message_of<Timeout>([&] { met(slots[1]); }), HasSubstr("or has met another process 1 before"));
}

/// Says that it is process `mine` of another build.
void call_with_other_build(const Slot& slot) {
  TcpNetwork network(network_options(slot));
  rendezvous::Request request{own_build_claim(), network.listens_at(), 1};
  request.build.layout[0] = 'x';
  rendezvous::Client caller(slot, network, request,
                            [&](std::string& problem) { return resolve(parse_rendezvous(slot.rendezvous), problem); });
  while (!caller.advance()) std::this_thread::yield();
}

TEST(TcpRendezvous, AllMustRunTheSameBuild) {
  const SlotsOfJob slots(3);
  const auto errors = side_by_side<std::string>(3, [&](int p) {
    return message_of<InvalidArgument>([&] { p == 2 ? call_with_other_build(slots[p]) : (void)met(slots[p]); });
  });
  EXPECT_THAT(errors, testing::Each(AllOf(HasSubstr("process 0 (host"), HasSubstr("process 2 (host"),
                                          HasSubstr("must run the same build"))));
}

TEST(TcpRendezvous, LateProcessReceivesTheFailure) {
  const SlotsOfJob slots(3);
  std::latch has_called(1);
  const auto errors = side_by_side<std::string>(3, [&](int p) {
    Slot slot = slots[p];
    if (p == 1) slot.processes = 4;
    if (p == 2) has_called.wait();
    std::string error = message_of<InvalidArgument>([&] {
      if (p != 1) return (void)met(slot);
      try {
        met(slot);
      } catch (...) {
        has_called.count_down();  // process 0 has refused it
        throw;
      }
    });
    return error;
  });
  EXPECT_THAT(errors, testing::Each(HasSubstr("process 1 (host")));
}

/// Process 2 has met process 0 and goes, before process 3 comes.
TEST(TcpRendezvous, AProcessThatGoesBeforeAllHaveMetIsNamed) {
  SlotsOfJob slots(4);
  const auto errors = side_by_side<std::string>(3, [&](int p) {
    if (p != 2) return message_of<PeerLost>([&] { met(slots[p]); });
    Slot slot = slots[p];
    slot.timeout = Seconds(0.3);
    return message_of<Timeout>([&] { met(slot); });
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("process 2 (host"), HasSubstr("has gone before all had met")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("process 2 (host"), HasSubstr("has gone before all had met")));
}

TEST(TcpRendezvous, Process0IsNamedIfItLeaves) {
  SlotsOfJob slots(3);
  std::latch has_called(1);
  auto error = std::async(std::launch::async, [&] {
    TcpNetwork network(network_options(slots[1]));
    return message_of<PeerLost>([&] { meet(slots[1], network); });
  });
  {
    // A process 0 that takes the call, and is killed.
    TcpNetwork network(network_options(slots[0]));
    rendezvous::Server host(slots[0], network, {own_build_claim(), network.listens_at(), 1},
                            listen_at(std::nullopt, slots.port()));
    while (host.describe_missing() != "process 2 has not come") host.advance();
  }
  EXPECT_THAT(error.get(), AllOf(HasSubstr("process 0 at 127.0.0.1"), HasSubstr("has gone before all had met")));
}

TEST(TcpRendezvous, StrangersAreCountedAndKeepNoProcessOut) {
  const SlotsOfJob slots(3);
  TcpNetwork network(network_options(slots[0]));
  rendezvous::Server host(slots[0], network, {own_build_claim(), network.listens_at(), 1},
                          listen_at(std::nullopt, slots.port()));
  Slot other_key = slots[1];
  other_key.key = make_job_key();
  Slot other_job = slots[1];
  ++other_job.job;
  std::vector<std::unique_ptr<TcpNetwork>> networks;
  std::list<rendezvous::Client> strangers;
  std::vector<Slot> theirs{other_key, other_job};
  for (const Slot& slot : theirs) {
    networks.push_back(std::make_unique<TcpNetwork>(network_options(slot)));
    strangers.emplace_back(
        slot, *networks.back(), rendezvous::Request{own_build_claim(), {}, 2},
        [&slot](std::string& problem) { return resolve(parse_rendezvous(slot.rendezvous), problem); });
  }
  const UniqueDescriptor garbage = start_connect(host_address(slots.port()), std::nullopt, Seconds(60));
  const std::string request = "GET / HTTP/1.1\r\n" + std::string(200, 'x');
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  bool is_sent = false;
  while (host.strangers() < 3 && !deadline.passed()) {
    host.advance();
    is_sent = is_sent || send(garbage.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0;
    for (auto& each : strangers) EXPECT_FALSE(each.advance());
  }
  EXPECT_GE(host.strangers(), 3U);
  EXPECT_THAT(strangers.front().describe_wait(), HasSubstr("another key"));
  auto met_them = std::async(std::launch::async, [&] {
    return side_by_side<bool>(2, [&](int place) { return met(slots[place + 1]) != nullptr; });
  });
  while (!host.advance() && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(met_them.get(), std::vector<bool>(2, true));
}

/// A place that cannot be reached tells less than one that has ended the handshake, whichever comes first.
TEST(TcpRendezvous, AnotherKeyIsNamedThoughAnotherPlaceFails) {
  const SlotsOfJob slots(2);
  TcpNetwork network(network_options(slots[0]));
  rendezvous::Server host(slots[0], network, {own_build_claim(), network.listens_at(), 1},
                          listen_at(std::nullopt, slots.port()));
  Slot other_key = slots[1];
  other_key.key = make_job_key();
  TcpNetwork their_network(network_options(other_key));
  std::string problem;
  const Address nowhere = resolve({"255.255.255.255", slots.port()}, problem).front();
  rendezvous::Client stranger(other_key, their_network, {own_build_claim(), {}, 2}, [&](std::string&) {
    return std::vector{nowhere, host_address(slots.port())};
  });
  EXPECT_FALSE(stranger.advance());
  EXPECT_THAT(stranger.describe_wait(), HasSubstr("255.255.255.255"));
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (stranger.describe_wait().find("another key") == std::string::npos && !deadline.passed()) {
    EXPECT_FALSE(stranger.advance());
    host.advance();
  }
  EXPECT_THAT(stranger.describe_wait(), HasSubstr("another key"));
}

/// torchrun's agents do not agree on how often they have started the job, so nothing that they say tells starts apart.
TEST(TcpRendezvous, AProcessOfAnEarlierStartIsAStranger) {
  const SlotsOfJob slots(2);
  const auto meet_all = [&] {
    return side_by_side<std::unique_ptr<TcpNetwork>>(2, [&](int p) { return met(slots[p]); });
  };
  const auto earlier = meet_all();
  const auto later = meet_all();
  earlier[1]->set_addresses(0, later[0]->listens_at());
  earlier[1]->link(0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (later[0]->strangers() == 0 && !deadline.passed()) {
    earlier[1]->advance();
    later[0]->advance();
  }
  EXPECT_GE(later[0]->strangers(), 1U);
  EXPECT_EQ(later[0]->connections(), 0);
}

TEST(TcpRendezvous, ThePointIsAHostAndAPort) {
  EXPECT_EQ(parse_rendezvous("node1:29500").host, "node1");
  EXPECT_EQ(parse_rendezvous("node1:29500").port, 29500);
  EXPECT_EQ(parse_rendezvous("[2001:db8::1]:1").host, "2001:db8::1");
  for (const char* wrong :
       {"", "node1", "node1:", ":29500", "node1:0", "node1:65536", "node1:1x", "2001:db8::1:29500"}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { parse_rendezvous(wrong); }),
                AllOf(HasSubstr(fmt::format("'{}'", wrong)), HasSubstr("host:port")));
  }
  std::string problem;
  EXPECT_TRUE(resolve({"no-such-host.invalid", 1}, problem).empty());
  EXPECT_THAT(problem, HasSubstr("no-such-host.invalid"));
  EXPECT_TRUE(resolve({"fe80::1", 1}, problem).empty());
  EXPECT_THAT(problem, HasSubstr("'fe80::1' has no address that means something beyond one link"));
}

TEST(BinomialTree, EveryProcessIsTheChildOfItsParentAndOfNoOther) {
  for (int processes = 1; processes <= 70; ++processes) {
    std::vector<int> parents(static_cast<std::size_t>(processes), -1);
    for (int p = 0; p < processes; ++p) {
      int next = p + 1;
      for (const int child : sockets::BinomialTree(p, processes).children()) {
        const sockets::BinomialTree below(child, processes);
        EXPECT_EQ(below.parent(), p);
        EXPECT_EQ(child, next) << "the numbers below a process have gaps";
        next = below.end();
        EXPECT_EQ(std::exchange(parents[static_cast<std::size_t>(child)], p), -1);
      }
      EXPECT_EQ(next, sockets::BinomialTree(p, processes).end());
    }
    EXPECT_EQ(std::count(parents.begin(), parents.end(), -1), 1) << "the root";
  }
}

}  // namespace
}  // namespace farandole::tcp
