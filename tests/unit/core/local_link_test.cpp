// SPDX-License-Identifier: Apache-2.0
// Messages over the socket between two processes, with both ends in this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "farandole/core/error.h"
#include "local/link.h"

namespace farandole::local {
namespace {

class LocalLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    here_ = std::make_unique<Link>(UniqueDescriptor(ends[0]));
    there_ = std::make_unique<Link>(UniqueDescriptor(ends[1]));
  }
  std::unique_ptr<Link> here_;
  std::unique_ptr<Link> there_;
};

std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(LocalLinkTest, MessagesOfAKeyArriveInOrderWhicheverEndIsFirst) {
  const auto sent = numbers(100, 7);
  std::vector<std::uint32_t> came(sent.size());
  std::vector<Receiving> receives;
  for (std::size_t i = 0; i < 50; ++i) receives.push_back(there_->recv(1, &came[i], sizeof came[i]));
  for (const auto& value : sent) EXPECT_TRUE(here_->send(1, &value, sizeof value).test());
  for (std::size_t i = 50; i < came.size(); ++i) receives.push_back(there_->recv(1, &came[i], sizeof came[i]));
  for (Receiving& each : receives) EXPECT_TRUE(each.test());
  EXPECT_EQ(came, sent);
}

TEST_F(LocalLinkTest, KeysDoNotWaitForEachOther) {
  const std::uint32_t first = 1;
  const std::uint32_t second = 2;
  here_->post(1, &first, sizeof first);
  here_->post(2, &second, sizeof second);
  std::uint32_t came = 0;
  Receiving receive = there_->recv(2, &came, sizeof came);
  EXPECT_TRUE(receive.test());
  EXPECT_EQ(came, 2U);
  EXPECT_TRUE(there_->has_arrived(1, ~Key{0}));
  EXPECT_FALSE(there_->has_arrived(2, ~Key{0})) << "somebody has asked for it";
  EXPECT_TRUE(there_->has_arrived(3, Key{1})) << "key 1 is the same in the lowest bit";
  EXPECT_FALSE(there_->take(3).has_value());
  EXPECT_EQ(there_->take(1)->size(), sizeof first);
}

// More than the sockets hold, both ways at once, and received only after much of it has come.
TEST_F(LocalLinkTest, LongMessagesPassBothWaysAtOnce) {
  const auto sent = numbers(1'000'000, 5);
  std::vector<std::uint32_t> here(sent.size());
  std::vector<std::uint32_t> there(sent.size());
  const std::size_t bytes = sent.size() * sizeof sent[0];
  Sending out = here_->send(1, sent.data(), bytes);
  Sending back = there_->send(1, sent.data(), bytes);
  EXPECT_FALSE(out.test()) << "more than a socket holds";
  EXPECT_FALSE(there_->has_arrived(2, ~Key{0})) << "reads what has come";
  Receiving into_there = there_->recv(1, there.data(), bytes);
  Receiving into_here = here_->recv(1, here.data(), bytes);
  for (int turn = 0; turn < 10'000 && !(into_there.test() && into_here.test()); ++turn) {
    out.test();
    back.test();
  }
  EXPECT_TRUE(out.test() && back.test() && into_there.test() && into_here.test());
  EXPECT_EQ(there, sent);
  EXPECT_EQ(here, sent);
}

TEST_F(LocalLinkTest, EmptyMessagesAreMessages) {
  Receiving receive = there_->recv(1, nullptr, 0);
  EXPECT_FALSE(receive.test());
  EXPECT_TRUE(here_->send(1, nullptr, 0).test());
  EXPECT_TRUE(receive.test());
  EXPECT_EQ(receive.bytes(), 0U);
}

TEST_F(LocalLinkTest, AMessageOfAnotherSizeIsNotWritten) {
  const auto sent = numbers(100'000, 1);
  std::vector<std::uint32_t> untouched(10, 42);
  Receiving receive = there_->recv(1, untouched.data(), 40);
  Sending message = here_->send(1, sent.data(), sent.size() * 4);
  for (int turn = 0; turn < 1000 && !receive.test(); ++turn) message.test();
  EXPECT_TRUE(receive.test());
  EXPECT_EQ(receive.bytes(), sent.size() * 4);
  EXPECT_EQ(untouched, std::vector<std::uint32_t>(10, 42));
}

TEST_F(LocalLinkTest, AMessageOfUnknownLengthIsWrittenIfThereIsRoom) {
  const auto sent = numbers(10, 1);
  std::vector<std::uint32_t> longer(12, 42);
  Receiving receive = there_->recv(1, longer.data(), 48, Length::kAtMost);
  EXPECT_TRUE(here_->send(1, sent.data(), 40).test());
  EXPECT_TRUE(receive.test());
  EXPECT_EQ(receive.bytes(), 40U);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), longer.begin()));
  EXPECT_EQ(longer[10], 42U);
}

TEST_F(LocalLinkTest, WhatIsWithdrawnIsNotTouched) {
  std::vector<std::uint32_t> untouched(1, 42);
  { const Receiving withdrawn = there_->recv(1, untouched.data(), 4); }
  const std::uint32_t value = 7;
  std::uint32_t came = 0;
  here_->post(1, &value, sizeof value);
  EXPECT_TRUE(there_->recv(1, &came, sizeof came).test());
  EXPECT_EQ(came, 7U);
  EXPECT_EQ(untouched[0], 42U);

  // In the middle of a message: its rest is dropped, and other keys go on.
  std::vector<std::uint32_t> half(1'000'000, 42);
  const auto sent = numbers(half.size(), 1);
  Sending message = here_->send(1, sent.data(), sent.size() * 4);
  {
    Receiving withdrawn = there_->recv(1, half.data(), half.size() * 4);
    EXPECT_FALSE(withdrawn.test());
  }
  const auto before = half;
  for (int turn = 0; turn < 10'000 && !message.test(); ++turn) there_->has_arrived(2, ~Key{0});
  EXPECT_TRUE(message.test());
  EXPECT_EQ(half, before);
  here_->post(2, &value, sizeof value);
  EXPECT_TRUE(there_->take(2).has_value());
}

TEST_F(LocalLinkTest, AWithdrawnSendLeavesTheOthersAlone) {
  const auto sent = numbers(1'000'000, 1);
  { const Sending withdrawn = here_->send(1, sent.data(), sent.size() * 4); }
  const std::uint32_t value = 7;
  here_->post(2, &value, sizeof value);
  bool came = false;
  for (int turn = 0; turn < 100 && !came; ++turn) {
    (void)here_->is_flushed();  // goes on sending
    came = there_->take(2).has_value();
  }
  EXPECT_TRUE(came);
}

/// A socket that is not connected yet refuses to send, and its link is then given one that is.
TEST_F(LocalLinkTest, AMessageThatCouldNotBeSentIsForgotten) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
  ASSERT_GE(socket, 0);
  Link link((UniqueDescriptor(socket)));
  {
    const std::vector<std::uint32_t> data(100, 7);
    EXPECT_THROW((void)link.send(1, data.data(), 400), TransportError);
    EXPECT_THROW(link.post(2, data.data(), 400), TransportError);
  }
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_EQ(dup2(ends[0], socket), socket);
  close(ends[0]);
  Link other((UniqueDescriptor(ends[1])));
  EXPECT_TRUE(link.is_flushed());
  EXPECT_FALSE(other.has_arrived(1, ~Key{0})) << "its data are gone";
  EXPECT_FALSE(other.has_arrived(2, ~Key{0})) << "its sender knows that it was not sent";
}

TEST_F(LocalLinkTest, WhatWasSentBeforeTheEndIsStillRead) {
  const std::uint32_t value = 7;
  there_->post(9, &value, sizeof value);  // unread at the other end when it goes: that end is reset
  here_->post(1, &value, sizeof value);
  EXPECT_FALSE(there_->is_closed());
  here_.reset();
  EXPECT_TRUE(there_->is_closed());
  EXPECT_TRUE(there_->take(1).has_value());
  there_->post(1, &value, sizeof value);
  EXPECT_TRUE(there_->is_flushed()) << "nobody is there to take it";
}

/// A link of which the other end is no link.
class LocalLinkTestPeer : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    peer_ = UniqueDescriptor(ends[0]);
    link_ = std::make_unique<Link>(UniqueDescriptor(ends[1]), "process 3", kept_);
  }
  void send_raw(const std::string& packet) {
    ASSERT_EQ(send(peer_.get(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
  }
  void send_packet(Key key, std::uint64_t bytes, std::uint64_t offset, std::size_t payload) {
    const PacketHeader header{key, bytes, offset};
    send_raw(std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(payload, 'x'));
  }
  /// What the link says of the packets so far, at first and from then on.
  std::string refusal() {
    std::string text = "nothing was thrown";
    for (int turn = 0; turn < 2; ++turn) {
      try {
        (void)link_->is_closed();
        return "nothing was thrown";
      } catch (const TransportError& error) {
        text = error.what();
      }
    }
    EXPECT_TRUE(link_->is_flushed()) << "a process that ends would wait for it";
    return text;
  }

  UniqueDescriptor peer_;
  KeptBytes kept_{100'000};
  std::unique_ptr<Link> link_;
};

TEST_F(LocalLinkTestPeer, PacketsThatAreNoneNameTheProcess) {
  struct Case {
    std::string name;
    std::function<void()> send;
    std::string reason;
  };
  const std::vector<Case> cases{
      {"no header", [&] { send_raw("short"); }, "a packet of 5 bytes"},
      {"longer than any", [&] { send_raw(std::string(40'000, 'x')); }, "a packet of 40000 bytes"},
      {"in the middle", [&] { send_packet(1, 100, 50, 10); }, "byte 50 of a message of 100 bytes that does not go on"},
      {"beyond the end", [&] { send_packet(1, 8, 0, 9); }, "9 bytes of payload at byte 0 of a message of 8"},
      {"far beyond", [&] { send_packet(1, 8, ~0ULL - 4, 8); }, "at byte 18446744073709551611 of a message of 8"},
      {"no progress", [&] { send_packet(1, 8, 0, 0); }, "0 bytes of payload"},
      {"too long", [&] { send_packet(1, ~0ULL, 0, 8); }, "a message of 18446744073709551615 bytes"},
      {"another length", [&] { send_packet(1, 8, 0, 4), send_packet(1, 9, 4, 4); }, "byte 4 of a message of 9"},
      {"a gap", [&] { send_packet(1, 8, 0, 4), send_packet(1, 8, 5, 3); }, "byte 5 of a message of 8"},
      {"twice", [&] { send_packet(1, 8, 0, 8), send_packet(1, 8, 8, 0); }, "0 bytes of payload at byte 8"},
  };
  for (const Case& each : cases) {
    SetUp();
    each.send();
    EXPECT_THAT(refusal(), testing::AllOf(testing::HasSubstr("process 3 has sent what no process"),
                                          testing::HasSubstr(each.reason)))
        << each.name;
  }
}

TEST_F(LocalLinkTestPeer, WhatNobodyAsksForIsBounded) {
  std::vector<char> wanted(60'000);
  send_packet(1, 60'000, 0, 30'000);
  send_packet(1, 60'000, 30'000, 30'000);
  EXPECT_FALSE(link_->is_closed());
  EXPECT_TRUE(link_->recv(1, wanted.data(), wanted.size()).test()) << "and is given back when it is asked for";
  for (int message = 0; message < 3; ++message) send_packet(2, 30'000, 0, 30'000);
  EXPECT_FALSE(link_->is_closed());
  send_packet(2, 30'000, 0, 30'000);
  EXPECT_THAT(refusal(), testing::HasSubstr("more than the 100000 bytes that this process keeps"));
  link_.reset();
  EXPECT_TRUE(kept_.take(100'000)) << "the link has given all of it back";
}

TEST_F(LocalLinkTestPeer, KeysThatNobodyAsksForAreBounded) {
  for (Key key = 0; key < 100; ++key) send_packet(key, 0, 0, 0);
  EXPECT_THAT(refusal(), testing::HasSubstr("more than the 100000 bytes"));
}

}  // namespace
}  // namespace farandole::local
