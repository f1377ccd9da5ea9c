// SPDX-License-Identifier: Apache-2.0
// Connection attempts from one process to another: order of addresses, pauses, timeouts and verdicts. The test sets the
// clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tcp/acceptor.h"
#include "tcp/connector.h"
#include "tcp/stream.h"
#include "tcp_slots.h"

namespace farandole::tcp {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using FailureKind = Connector::Failure::Kind;
using CallState = Connector::State;

constexpr Clock::time_point kStart{1h};

/// Process 1 of 2, which is called, and what process 0 needs to call it.
class CalledProcess {
 public:
  explicit CalledProcess(Verdict verdict = Verdict::kAccepted)
      : verdict_(verdict), callers_(std::move(listener_), key_, introduction(1), Seconds(60)) {}

  Address address() const { return host_address(port_); }
  ConnectOptions terms() const {
    ConnectOptions terms;
    terms.key = key_;
    terms.introduction = introduction(0);
    terms.target_process = 1;
    terms.connect_timeout = 3s;
    terms.answer_timeout = 5s;
    terms.first_pause = 10ms;
    terms.max_pause = 40ms;
    return terms;
  }
  void answer() {
    callers_.advance([this](const Introduction&) { return verdict_; },
                     [this](const Introduction&, UniqueDescriptor socket) { adopted_ = std::move(socket); });
  }
  bool has_adopted() const { return static_cast<bool>(adopted_); }

 private:
  static Introduction introduction(int process) { return {7, process, 2, 0, Purpose::kMessages, 0}; }

  const Verdict verdict_;
  const JobKey key_ = make_job_key();
  UniqueDescriptor listener_ = listen_at(host_address(0));
  const std::uint16_t port_ = port_of(listener_);
  Acceptor callers_;
  UniqueDescriptor adopted_;
};

/// An address at which no program listens: a socket that does not listen has its port.
class ClosedPort {
 public:
  ClosedPort() {
    sockaddr_storage any{};
    const unsigned length = to_sockaddr(host_address(0), any);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), length), 0);
  }
  Address address() const { return host_address(port_of(socket_)); }

 private:
  UniqueDescriptor socket_{::socket(AF_INET, SOCK_STREAM, 0)};
};

/// A program that takes calls and says nothing.
class SilentProgram {
 public:
  Address address() const { return host_address(port_); }
  /// Makes the first call, at kStart, and returns when some of it has come.
  void take_call(Connector& calls) {
    UniqueDescriptor caller;
    char byte = 0;
    const Deadline deadline = Deadline::after(20s);
    while (!deadline.passed() && (!caller || recv(caller.get(), &byte, 1, MSG_PEEK) <= 0)) {
      EXPECT_EQ(calls.advance(kStart), CallState::kWaiting);
      if (!caller) caller = accept_connection(listener_, Seconds(60));
    }
    EXPECT_EQ(byte, 'f') << "no call has come";
    callers_.push_back(std::move(caller));
  }
  void end() {
    callers_.clear();
    listener_ = UniqueDescriptor();
  }

 private:
  UniqueDescriptor listener_ = listen_at(host_address(0));
  const std::uint16_t port_ = port_of(listener_);
  std::vector<UniqueDescriptor> callers_;
};

/// Advances the connection attempts at time `now` until they have a result; kWaiting if there is none within 20 s.
CallState outcome(Connector& calls, Clock::time_point now, CalledProcess* called = nullptr) {
  const Deadline deadline = Deadline::after(20s);
  while (!deadline.passed()) {
    if (called != nullptr) called->answer();
    const CallState state = calls.advance(now);
    if (state != CallState::kWaiting) return state;
    std::this_thread::yield();
  }
  return CallState::kWaiting;
}

TEST(TcpConnector, ACallThatIsTakenUpIsAConnection) {
  CalledProcess called;
  Connector calls(called.terms(), {called.address()});
  ASSERT_EQ(outcome(calls, kStart, &called), CallState::kConnected);
  const UniqueDescriptor socket = calls.take_socket();
  EXPECT_TRUE(socket);
  EXPECT_FALSE(calls.is_attempting());
  EXPECT_FALSE(calls.failure());
  const Deadline deadline = Deadline::after(20s);
  while (!called.has_adopted() && !deadline.passed()) called.answer();
  EXPECT_TRUE(called.has_adopted());
}

TEST(TcpConnector, TheNextAddressIsCalledWithoutAPause) {
  CalledProcess called;
  const ClosedPort closed;
  Connector calls(called.terms(), {closed.address(), called.address()});
  ASSERT_EQ(outcome(calls, kStart), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kNotListening);
  EXPECT_EQ(calls.failure()->describe(), to_text(closed.address()) + ": Connection refused");
  EXPECT_EQ(outcome(calls, kStart, &called), CallState::kConnected);
}

TEST(TcpConnector, PausesBetweenTheRoundsDoubleUpToTheLongest) {
  const CalledProcess called;
  const ClosedPort one, other;
  Connector calls(called.terms(), {one.address(), other.address()});
  Clock::time_point now = kStart;
  for (const auto pause : {10ms, 20ms, 40ms, 40ms}) {
    for (const Address& address : {one.address(), other.address()}) {
      ASSERT_EQ(outcome(calls, now), CallState::kFailed);
      EXPECT_EQ(calls.failure()->at, address);
    }
    EXPECT_EQ(calls.advance(now + pause - 1ms), CallState::kWaiting);
    EXPECT_FALSE(calls.is_attempting()) << "after " << pause.count() << " ms";
    now += pause;
  }
}

TEST(TcpConnector, AnAddressWithoutAnAnswerIsLeftAfterTheConnectTime) {
  const CalledProcess called;
  const FullPort full;
  Connector calls(called.terms(), {full.address()});
  EXPECT_EQ(calls.advance(kStart), CallState::kWaiting);
  EXPECT_EQ(calls.advance(kStart + 3s - 1ms), CallState::kWaiting);
  ASSERT_EQ(calls.advance(kStart + 3s), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kUnreachable);
  EXPECT_EQ(calls.failure()->text, "no answer");
}

TEST(TcpConnector, AProgramThatDoesNotAnswerIsLeftAfterTheAnswerTime) {
  const CalledProcess called;
  SilentProgram silent;
  Connector calls(called.terms(), {silent.address()});
  silent.take_call(calls);
  EXPECT_EQ(calls.advance(kStart + 5s - 1ms), CallState::kWaiting);
  ASSERT_EQ(calls.advance(kStart + 5s), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kSilent);
}

TEST(TcpConnector, WithoutAnAnswerTimeAProgramMayTakeAnyTime) {
  const CalledProcess called;
  SilentProgram silent;
  ConnectOptions terms = called.terms();
  terms.answer_timeout = Clock::duration::max();
  Connector calls(terms, {silent.address()});
  silent.take_call(calls);
  EXPECT_EQ(calls.advance(kStart + 1000h), CallState::kWaiting);
  EXPECT_TRUE(calls.is_attempting());
}

TEST(TcpConnector, AStrangerThatListensBreaksTheHandshake) {
  const CalledProcess called;
  CalledProcess stranger;  // it has another key
  Connector calls(called.terms(), {stranger.address()});
  ASSERT_EQ(outcome(calls, kStart, &stranger), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kBroken);
  EXPECT_EQ(calls.failing_since(), kStart);
}

TEST(TcpConnector, AnEndThatDeclinesIsThereAndIsCalledAgain) {
  CalledProcess called(Verdict::kMisfit);
  const ClosedPort closed;
  Connector calls(called.terms(), {closed.address(), called.address(), closed.address()});
  ASSERT_EQ(outcome(calls, kStart), CallState::kFailed);
  EXPECT_EQ(calls.failing_since(), kStart);
  ASSERT_EQ(outcome(calls, kStart, &called), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kDeclined);
  EXPECT_EQ(calls.failure()->verdict, Verdict::kMisfit);
  EXPECT_THAT(calls.failure()->text, HasSubstr("another number of processes"));
  EXPECT_FALSE(calls.failing_since());
  ASSERT_EQ(outcome(calls, kStart + 10ms, &called), CallState::kFailed);
  EXPECT_EQ(calls.failure()->at, called.address());
}

TEST(TcpConnector, FailingBeginsWithTheFirstFailure) {
  const CalledProcess called;
  const ClosedPort closed;
  Connector calls(called.terms(), {closed.address()});
  EXPECT_FALSE(calls.failing_since());
  ASSERT_EQ(outcome(calls, kStart), CallState::kFailed);
  ASSERT_EQ(outcome(calls, kStart + 1s), CallState::kFailed);
  EXPECT_EQ(calls.failing_since(), kStart);
}

TEST(TcpConnector, AnnouncedConnectionThatNeverArrivesIsAFailure) {
  CalledProcess called(Verdict::kTaken);
  Connector calls(called.terms(), {called.address()});
  ASSERT_EQ(outcome(calls, kStart, &called), CallState::kFailed);
  ASSERT_EQ(outcome(calls, kStart + 1s, &called), CallState::kFailed);
  EXPECT_EQ(calls.failing_since(), kStart);
  EXPECT_THAT(calls.failure()->text, HasSubstr("has a connection"));
}

TEST(TcpConnector, SilentAddressRestartsTheTimeOfRefusals) {
  const CalledProcess called;
  const ClosedPort closed;
  const FullPort full;
  Connector calls(called.terms(), {closed.address(), full.address()});
  ASSERT_EQ(outcome(calls, kStart), CallState::kFailed);
  EXPECT_EQ(calls.refused_since(), kStart);
  EXPECT_EQ(calls.advance(kStart), CallState::kWaiting);
  ASSERT_EQ(calls.advance(kStart + 3s), CallState::kFailed);
  EXPECT_FALSE(calls.refused_since());
  ASSERT_EQ(outcome(calls, kStart + 4s), CallState::kFailed);
  EXPECT_EQ(calls.failure()->kind, FailureKind::kNotListening);
  EXPECT_EQ(calls.refused_since(), kStart + 4s);
  EXPECT_EQ(calls.failing_since(), kStart);
}

TEST(TcpConnector, ACallIsThroughWhenTheKernelOfTheOtherEndHasTakenIt) {
  const CalledProcess called;
  const FullPort full;
  Connector waiting(called.terms(), {full.address()});
  EXPECT_EQ(waiting.advance(kStart), CallState::kWaiting);
  EXPECT_TRUE(waiting.is_attempting());
  EXPECT_FALSE(waiting.is_established());
  SilentProgram silent;
  Connector taken(called.terms(), {silent.address()});
  silent.take_call(taken);
  EXPECT_TRUE(taken.is_established());
}

TEST(TcpConnector, AnEndThatHasLetACallWaitIsThere) {
  const CalledProcess called;
  const ClosedPort closed;
  SilentProgram busy;
  Connector calls(called.terms(), {closed.address(), busy.address()});
  ASSERT_EQ(outcome(calls, kStart), CallState::kFailed);
  EXPECT_EQ(calls.failing_since(), kStart);
  busy.take_call(calls);
  busy.end();
  ASSERT_EQ(outcome(calls, kStart + 3s), CallState::kFailed);
  EXPECT_FALSE(calls.failing_since());
}

TEST(TcpConnector, AfterHangingUpTheNextCallHasItsTime) {
  const CalledProcess called;
  const SilentProgram silent;
  Connector calls(called.terms(), {silent.address()});
  calls.advance(kStart);
  EXPECT_TRUE(calls.is_attempting());
  calls.cancel(kStart + 1s);
  EXPECT_FALSE(calls.is_attempting());
  calls.advance(kStart + 1s - 1ms);
  EXPECT_FALSE(calls.is_attempting());
  calls.advance(kStart + 1s);
  EXPECT_TRUE(calls.is_attempting());
}

TEST(TcpConnector, WithoutAnAddressThereIsNoCall) {
  CalledProcess called;
  Connector calls(called.terms());
  EXPECT_EQ(calls.advance(kStart), CallState::kWaiting);
  EXPECT_FALSE(calls.is_attempting());
  calls.set_addresses({called.address()});
  EXPECT_EQ(outcome(calls, kStart, &called), CallState::kConnected);
}

}  // namespace
}  // namespace farandole::tcp
