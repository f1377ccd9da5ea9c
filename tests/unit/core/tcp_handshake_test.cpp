// SPDX-License-Identifier: Apache-2.0
// The handshake of a new connection, with a relay between the two ends that records and changes what passes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "farandole/internal/deadline.h"
#include "socket_pair.h"
#include "tcp/handshake.h"

namespace farandole::tcp {
namespace {

using State = Handshake::State;
constexpr int kCaller = 1;
constexpr int kCalled = 2;

Introduction introduce(int process) {
  return {/*job=*/77, process, /*processes=*/4, /*start=*/5, Purpose::kMessages};
}

std::string read_all(const UniqueDescriptor& socket) {
  std::string bytes(4096, '\0');
  const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

void write_all(const UniqueDescriptor& socket, const std::string& bytes) {
  if (!bytes.empty()) (void)!send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// A caller, a called end, and a relay between both.
class Conversation {
 public:
  using Change = std::function<std::string(std::string)>;
  explicit Conversation(const Introduction& caller = introduce(kCaller),
                        const Introduction& called = introduce(kCalled))
      : Conversation(key(), key(), caller, called) {}
  Conversation(const JobKey& callers_key, const JobKey& called_key, const Introduction& caller = introduce(kCaller),
               const Introduction& called = introduce(kCalled), test::SocketPair callers = test::unix_socket_pair(),
               test::SocketPair calleds = test::unix_socket_pair()) {
    auto& [callers_end, callers_line] = callers;
    auto& [called_line, called_end] = calleds;
    callers_line_ = std::move(callers_line);
    called_line_ = std::move(called_line);
    caller_.emplace(Handshake::initiate(std::move(callers_end), callers_key, caller, kCalled));
    called_.emplace(Handshake::respond(std::move(called_end), called_key, called));
  }
  static JobKey key() {
    static const JobKey all = make_job_key();
    return all;
  }

  /// Lets both go as far as they can.
  void run(Verdict verdict = Verdict::kAccepted, const Change& up = nullptr, const Change& down = nullptr) {
    for (int turn = 0; turn < 6; ++turn) {
      caller_->advance();
      pass(callers_line_, called_line_, up, sent_up_, came_up_);
      if (called_->advance() == State::kProven) {
        was_proven_ = true;
        called_->decide(verdict);
        called_->advance();
      }
      pass(called_line_, callers_line_, down, sent_down_, came_down_);
    }
  }
  Handshake& caller() { return *caller_; }
  Handshake& called() { return *called_; }
  bool was_proven() const { return was_proven_; }
  /// Bytes sent by the caller.
  const std::string& sent_up() const { return sent_up_; }
  /// True if each end has received exactly the bytes that its peer has sent. (A second change may undo the first.)
  bool is_unchanged() const { return came_up_.starts_with(sent_up_) && came_down_.starts_with(sent_down_); }

 private:
  static void pass(const UniqueDescriptor& from, const UniqueDescriptor& to, const Change& change, std::string& sent,
                   std::string& came) {
    std::string bytes = read_all(from);
    sent += bytes;
    if (change && !bytes.empty()) bytes = change(bytes);
    came += bytes;
    write_all(to, bytes);
  }

  std::optional<Handshake> caller_, called_;
  UniqueDescriptor callers_line_, called_line_;
  std::string sent_up_, sent_down_, came_up_, came_down_;
  bool was_proven_ = false;
};

/// A called end by itself, and the line to it.
struct Called {
  Called() {
    auto [end, far] = test::unix_socket_pair();
    line = std::move(far);
    handshake.emplace(Handshake::respond(std::move(end), Conversation::key(), introduce(kCalled)));
  }
  State hear(const std::string& bytes) {
    write_all(line, bytes);
    return handshake->advance();
  }
  UniqueDescriptor line;
  std::optional<Handshake> handshake;
};

TEST(TcpHandshake, EachEndLearnsOfTheOther) {
  Conversation conversation;
  conversation.run();
  EXPECT_EQ(conversation.caller().state(), State::kDone) << conversation.caller().problem();
  EXPECT_EQ(conversation.called().state(), State::kDone) << conversation.called().problem();
  EXPECT_EQ(conversation.caller().peer(), introduce(kCalled));
  EXPECT_EQ(conversation.called().peer(), introduce(kCaller));
}

TEST(TcpHandshake, ReadsNothingBehindTheHandshake) {
  Conversation conversation;
  conversation.run(Verdict::kAccepted,
                   [](const std::string& bytes) { return bytes.size() == 1 ? bytes + "data" : bytes; });
  ASSERT_EQ(conversation.called().state(), State::kDone);
  EXPECT_EQ(read_all(conversation.called().take_socket()), "data");
}

TEST(TcpHandshake, CallerReceivesTheRefusingVerdict) {
  for (const Verdict verdict : {Verdict::kCrossed, Verdict::kTaken, Verdict::kMisfit}) {
    Conversation conversation;
    conversation.run(verdict);
    EXPECT_EQ(conversation.caller().state(), State::kRefused);
    EXPECT_EQ(conversation.caller().verdict(), verdict);
    EXPECT_EQ(conversation.called().state(), State::kRefused);
  }
}

TEST(TcpHandshake, DifferentNumbersOfProcessesAreForTheOwnerToSee) {
  Introduction larger = introduce(kCaller);
  larger.processes = 9;
  Conversation conversation(larger);
  conversation.run(Verdict::kMisfit);
  EXPECT_EQ(conversation.called().peer().processes, 9);
  EXPECT_EQ(conversation.caller().peer().processes, 4);
}

TEST(TcpHandshake, AWrongKeyIsAStrangers) {
  Conversation conversation(make_job_key(), Conversation::key());
  conversation.run();
  EXPECT_EQ(conversation.called().state(), State::kFailed);
  EXPECT_TRUE(conversation.called().is_stranger());
  EXPECT_FALSE(conversation.was_proven());
  EXPECT_NE(conversation.caller().state(), State::kDone);
}

TEST(TcpHandshake, AnImpostorIsFoundOutByTheCaller) {
  // The impostor relays the right process's messages, and then sends its own acceptance: the verdict is part of the
  // proof.
  Conversation conversation;
  conversation.run(Verdict::kCrossed, nullptr, [](std::string bytes) {
    if (bytes.size() == 33) bytes[0] = static_cast<char>(Verdict::kAccepted);
    return bytes;
  });
  EXPECT_EQ(conversation.caller().state(), State::kFailed);
  EXPECT_TRUE(conversation.caller().is_stranger());
}

TEST(TcpHandshake, ARecordedHandshakeProvesNothing) {
  Conversation first;
  first.run();
  ASSERT_EQ(first.called().state(), State::kDone);
  Called second;
  EXPECT_EQ(second.hear(first.sent_up()), State::kFailed);
  EXPECT_TRUE(second.handshake->is_stranger());
}

TEST(TcpHandshake, ReflectedMessageProvesNothing) {
  // To the called end, by a caller without a key.
  Called called;
  called.handshake->advance();
  EXPECT_NE(called.hear(read_all(called.line)), State::kProven);
  EXPECT_NE(called.hear(std::string(32, '\0')), State::kProven);
  EXPECT_EQ(called.handshake->state(), State::kFailed);
  // To the caller, by a called end without a key.
  auto [end, line] = test::unix_socket_pair();
  Handshake caller = Handshake::initiate(std::move(end), Conversation::key(), introduce(kCaller), kCalled);
  caller.advance();
  write_all(line, read_all(line));
  EXPECT_EQ(caller.advance(), State::kFailed);
}

/// A program without the key listens at a port of its own, and calls the called end itself.
TEST(TcpHandshake, MessageRelayedFromAnotherPortProvesNothing) {
  Conversation conversation(Conversation::key(), Conversation::key(), introduce(kCaller), introduce(kCalled),
                            test::tcp_socket_pair(), test::tcp_socket_pair());
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (conversation.called().state() == State::kUnderway && !deadline.passed()) conversation.run();
  EXPECT_FALSE(conversation.was_proven());
  EXPECT_EQ(conversation.called().state(), State::kFailed);
  EXPECT_TRUE(conversation.called().is_stranger());
  EXPECT_THAT(conversation.called().problem(), testing::HasSubstr("port that was called"));
  EXPECT_NE(conversation.caller().state(), State::kDone);
}

TEST(TcpHandshake, RefusesAnotherJobOrGeneration) {
  for (const auto& change : std::vector<std::function<void(Introduction&)>>{
           [](Introduction& each) { each.job = 78; }, [](Introduction& each) { each.start = 4; }}) {
    Introduction other = introduce(kCaller);
    change(other);
    Conversation conversation(other);
    conversation.run();
    EXPECT_EQ(conversation.called().state(), State::kFailed);
    EXPECT_TRUE(conversation.called().is_stranger());
  }
}

TEST(TcpHandshake, AnotherPurposeIsRefusedButNoStranger) {
  Introduction other = introduce(kCaller);
  other.purpose = Purpose::kRendezvous;
  Conversation conversation(other);
  conversation.run();
  EXPECT_EQ(conversation.called().state(), State::kFailed);
  EXPECT_FALSE(conversation.called().is_stranger());
  EXPECT_FALSE(conversation.was_proven());
}

TEST(TcpHandshake, AnotherProcessOfTheJobIsNoStranger) {
  Conversation conversation(introduce(kCaller), introduce(3));
  conversation.run();
  EXPECT_EQ(conversation.called().state(), State::kFailed);
  EXPECT_FALSE(conversation.called().is_stranger());
  EXPECT_THAT(conversation.called().problem(), testing::HasSubstr("process 2 was called"));
}

TEST(TcpHandshake, SomethingElseThanAHandshakeIsAStrangers) {
  Called called;
  EXPECT_EQ(called.hear("GET / HTTP/1.1\r\nHost: node7\r\n" + std::string(100, ' ')), State::kFailed);
  EXPECT_TRUE(called.handshake->is_stranger());
}

TEST(TcpHandshake, AConnectionThatEndsEarlyFails) {
  Called called;
  EXPECT_EQ(called.hear("farandol"), State::kUnderway);
  { const UniqueDescriptor closed(std::move(called.line)); }
  EXPECT_EQ(called.handshake->advance(), State::kFailed);
  EXPECT_FALSE(called.handshake->is_stranger());
}

TEST(TcpHandshake, ACallerThatStaysUnprovenIsOverdue) {
  Called called;
  called.hear("far");
  EXPECT_FALSE(called.handshake->is_overdue(Clock::now()));
  EXPECT_TRUE(called.handshake->is_overdue(Clock::now() + Handshake::kDeadline));
  Conversation proven;
  proven.run();
  EXPECT_FALSE(proven.called().is_overdue(Clock::now() + Handshake::kDeadline));
}

TEST(TcpHandshake, BytesMayComeOneByOne) {
  Called called;
  auto [end, line] = test::unix_socket_pair();
  Handshake caller = Handshake::initiate(std::move(end), Conversation::key(), introduce(kCaller), kCalled);
  const auto trickle = [](const UniqueDescriptor& from, const UniqueDescriptor& to, Handshake& receiver) {
    for (const char byte : read_all(from)) {
      write_all(to, std::string(1, byte));
      receiver.advance();
    }
  };
  for (int turn = 0; turn < 6; ++turn) {
    caller.advance();
    trickle(line, called.line, *called.handshake);
    if (called.handshake->state() == State::kProven) called.handshake->decide(Verdict::kAccepted);
    called.handshake->advance();
    trickle(called.line, line, caller);
  }
  EXPECT_EQ(caller.state(), State::kDone);
  EXPECT_EQ(called.handshake->state(), State::kDone);
}

TEST(TcpHandshake, NoChangedByteGetsPastIt) {
  const char* given = std::getenv("FARANDOLE_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("FARANDOLE_SEED=" + std::to_string(seed));
  const auto change = [&random](std::string bytes) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(bytes[at] + 1));
        break;
      default:
        for (char& byte : bytes) byte = static_cast<char>(random());
    }
    return bytes;
  };
  int unchanged = 0;
  for (int input = 0; input < 10'000; ++input) {
    Conversation conversation;
    // The confirmation, of one byte, is after the proofs.
    const auto before_confirmation = [&](const std::string& bytes) {
      return bytes.size() == 1 ? bytes : change(bytes);
    };
    const bool is_up = input % 2 == 0;
    conversation.run(Verdict::kAccepted, is_up ? before_confirmation : Conversation::Change(),
                     is_up ? Conversation::Change() : change);
    if (conversation.is_unchanged()) {
      ++unchanged;
      continue;
    }
    ASSERT_FALSE(is_up && conversation.was_proven()) << "input " << input;
    ASSERT_NE(conversation.caller().state(), State::kDone) << "input " << input;
  }
  EXPECT_LE(unchanged, 2);
}

}  // namespace
}  // namespace farandole::tcp
