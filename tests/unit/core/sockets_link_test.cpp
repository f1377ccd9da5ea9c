// SPDX-License-Identifier: Apache-2.0
// Messages over the socket between two processes. Both ends are in this process.
#include "sockets/link.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/deadline.h"
#include "socket_pair.h"

namespace farandole::sockets {
namespace {

using Connect = test::SocketPair (*)();
constexpr Connect kUnix = &test::unix_socket_pair;
constexpr Connect kTcp = &test::tcp_socket_pair;

/// Polls `is_true` until it returns true or 20 s have passed: bytes take time from one end to the other.
template <class Look>
bool soon(const Look& is_true) {
  for (const Deadline deadline = Deadline::after(std::chrono::seconds(20)); !deadline.passed();) {
    if (is_true()) return true;
  }
  return false;
}

template <class Message>
bool is_soon_done(Message& message) {
  return soon([&] { return message.test(); });
}

class SocketsLink : public testing::TestWithParam<Connect> {
 protected:
  void SetUp() override {
    test::SocketPair ends = GetParam()();
    here_ = std::make_unique<Link>(std::move(ends[0]));
    there_ = std::make_unique<Link>(std::move(ends[1]));
  }
  std::unique_ptr<Link> here_;
  std::unique_ptr<Link> there_;
};

std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_P(SocketsLink, MessagesOfAKeyArriveInOrderWhicheverEndIsFirst) {
  const auto sent = numbers(100, 7);
  std::vector<std::uint32_t> came(sent.size());
  std::vector<Receiving> receives;
  for (std::size_t i = 0; i < 50; ++i) receives.push_back(there_->recv(1, &came[i], sizeof came[i]));
  for (const auto& value : sent) EXPECT_TRUE(here_->send(1, &value, sizeof value).test());
  for (std::size_t i = 50; i < came.size(); ++i) receives.push_back(there_->recv(1, &came[i], sizeof came[i]));
  for (Receiving& each : receives) EXPECT_TRUE(is_soon_done(each));
  EXPECT_EQ(came, sent);
}

TEST_P(SocketsLink, KeysDoNotWaitForEachOther) {
  const std::uint32_t first = 1;
  const std::uint32_t second = 2;
  here_->post(1, &first, sizeof first);
  here_->post(2, &second, sizeof second);
  std::uint32_t came = 0;
  Receiving receive = there_->recv(2, &came, sizeof came);
  EXPECT_TRUE(is_soon_done(receive));
  EXPECT_EQ(came, 2U);
  EXPECT_TRUE(there_->has_arrived(1, ~Key{0}));
  EXPECT_FALSE(there_->has_arrived(2, ~Key{0})) << "a transfer has asked for it";
  EXPECT_TRUE(there_->has_arrived(3, Key{1})) << "key 1 is the same in the lowest bit";
  EXPECT_FALSE(there_->take(3).has_value());
  EXPECT_EQ(there_->take(1)->size(), sizeof first);
}

// More than the sockets hold, both ways at once, and received only after much of it has come.
TEST_P(SocketsLink, LongMessagesPassBothWaysAtOnce) {
  const auto sent = numbers(10'000'000, 5);
  std::vector<std::uint32_t> here(sent.size());
  std::vector<std::uint32_t> there(sent.size());
  const std::size_t bytes = sent.size() * sizeof sent[0];
  Sending out = here_->send(1, sent.data(), bytes);
  Sending back = there_->send(1, sent.data(), bytes);
  EXPECT_FALSE(out.test()) << "more than a socket holds";
  EXPECT_FALSE(there_->has_arrived(2, ~Key{0})) << "reads what has come";
  Receiving into_there = there_->recv(1, there.data(), bytes);
  Receiving into_here = here_->recv(1, here.data(), bytes);
  EXPECT_TRUE(soon([&] {
    const bool has_sent = out.test() && back.test();
    return into_there.test() && into_here.test() && has_sent;
  }));
  EXPECT_EQ(there, sent);
  EXPECT_EQ(here, sent);
}

TEST_P(SocketsLink, ShortMessagesPassBetweenTheFramesOfALongOne) {
  const std::vector<std::byte> data(64 << 20);
  std::vector<std::byte> came(data.size());
  Sending out = here_->send(1, data.data(), data.size());
  Receiving into = there_->recv(1, came.data(), came.size());
  const std::uint32_t value = 7;
  for (int i = 0; i < 3; ++i) {
    // Nothing but frames that were on their way already comes before it.
    here_->post(2, &value, sizeof value);
    EXPECT_TRUE(soon([&] {
      (void)here_->is_flushed();
      return there_->take(2).has_value();
    }));
    EXPECT_FALSE(out.test());
  }
}

TEST_P(SocketsLink, BytesBehindAPostedReceiveStayInTheSocket) {
  test::SocketPair ends = GetParam()();
  Link sender(std::move(ends[0]));
  constexpr std::size_t kBound = 512 * 1024;  // a frame has room in it, and the long message has not
  KeptBytes kept(kBound);
  Link link(std::move(ends[1]), "another process", kept);
  const auto first = numbers(100, 7), second = numbers(1 << 20, 9);
  Sending sending_first = sender.send(1, first.data(), first.size() * 4);
  Sending sending_second = sender.send(2, second.data(), second.size() * 4);
  std::vector<std::uint32_t> came_first(first.size()), came_second(second.size());
  Receiving receiving_first = link.recv(1, came_first.data(), came_first.size() * 4);
  EXPECT_TRUE(is_soon_done(receiving_first));
  EXPECT_EQ(came_first, first);
  // A rank that asks for nothing reads nothing, however often the first message is looked at.
  for (int look = 0; look < 100; ++look) EXPECT_TRUE(receiving_first.test());
  int unread = 0;
  ASSERT_EQ(ioctl(link.descriptor(), FIONREAD, &unread), 0);
  EXPECT_GT(unread, 0);
  Receiving receiving_second = link.recv(2, came_second.data(), came_second.size() * 4);
  EXPECT_TRUE(soon([&] {
    const bool is_sent = sending_second.test();
    return receiving_second.test() && is_sent;
  }));
  EXPECT_EQ(came_second, second);
}

TEST_P(SocketsLink, SendersReadUnexpectedMessages) {
  const auto here = numbers(4 << 20, 1), there = numbers(4 << 20, 2);
  Sending from_here = here_->send(1, here.data(), here.size() * 4);
  Sending from_there = there_->send(1, there.data(), there.size() * 4);
  // The end that has sent all does not look any more, and reads again when it asks for something.
  EXPECT_TRUE(soon([&] {
    const bool is_sent = from_here.test();
    return from_there.test() || is_sent;
  })) << "each waits until the other one reads";
  std::vector<std::uint32_t> at_here(there.size()), at_there(here.size());
  Receiving into_here = here_->recv(1, at_here.data(), at_here.size() * 4);
  Receiving into_there = there_->recv(1, at_there.data(), at_there.size() * 4);
  EXPECT_TRUE(soon([&] {
    const bool has_sent = from_here.test() && from_there.test();
    return into_here.test() && into_there.test() && has_sent;
  }));
  EXPECT_EQ(at_here, there);
  EXPECT_EQ(at_there, here);
}

TEST_P(SocketsLink, EmptyMessagesAreMessages) {
  Receiving receive = there_->recv(1, nullptr, 0);
  EXPECT_FALSE(receive.test());
  EXPECT_TRUE(here_->send(1, nullptr, 0).test());
  EXPECT_TRUE(is_soon_done(receive));
  EXPECT_EQ(receive.bytes(), 0U);
  here_->post(1, nullptr, 0);
  EXPECT_TRUE(soon([&] { return there_->take(1).has_value(); }));
}

TEST_P(SocketsLink, AMessageOfAnotherSizeIsNotWritten) {
  const auto sent = numbers(100'000, 1);
  std::vector<std::uint32_t> untouched(10, 42);
  std::vector<std::uint32_t> unreduced(10, 42);
  Receiving receive = there_->recv(1, untouched.data(), 40);
  Receiving reduction = there_->recv_reduce(2, unreduced.data(), unreduced.data(), 10, DType::kI32, ReduceOp::kSum);
  for (Key key = 1; key <= 2; ++key) {
    Sending message = here_->send(key, sent.data(), sent.size() * 4);
    Receiving& to = key == 1 ? receive : reduction;
    EXPECT_TRUE(soon([&] { return static_cast<int>(message.test()) + static_cast<int>(to.test()) == 2; }));
    EXPECT_EQ(to.bytes(), sent.size() * 4);
  }
  EXPECT_EQ(untouched, std::vector<std::uint32_t>(10, 42));
  EXPECT_EQ(unreduced, untouched);
}

TEST_P(SocketsLink, AMessageOfUnknownLengthIsWrittenIfThereIsRoom) {
  const auto sent = numbers(10, 1);
  std::vector<std::uint32_t> longer(12, 42);
  Receiving receive = there_->recv(1, longer.data(), 48, Length::kAtMost);
  EXPECT_TRUE(here_->send(1, sent.data(), 40).test());
  EXPECT_TRUE(is_soon_done(receive));
  EXPECT_EQ(receive.bytes(), 40U);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), longer.begin()));
  EXPECT_EQ(longer[10], 42U);
}

TEST_P(SocketsLink, MemoryOfWithdrawnTransfersIsNotTouched) {
  std::vector<std::uint32_t> untouched(1, 42);
  { const Receiving withdrawn = there_->recv(1, untouched.data(), 4); }
  const std::uint32_t value = 7;
  std::uint32_t came = 0;
  here_->post(1, &value, sizeof value);
  Receiving receive = there_->recv(1, &came, sizeof came);
  EXPECT_TRUE(is_soon_done(receive));
  EXPECT_EQ(came, 7U);
  EXPECT_EQ(untouched[0], 42U);

  // In the middle of a message: its rest is dropped, and other keys go on.
  std::vector<std::uint32_t> half(10'000'000, 42);
  const auto sent = numbers(half.size(), 1);
  Sending message = here_->send(1, sent.data(), sent.size() * 4);
  {
    Receiving withdrawn = there_->recv(1, half.data(), half.size() * 4);
    EXPECT_TRUE(soon([&] { return withdrawn.test() || half[0] != 42; }));
    EXPECT_EQ(half.back(), 42U);
  }
  const auto before = half;
  EXPECT_TRUE(soon([&] { return !there_->has_arrived(2, ~Key{0}) && message.test(); }));
  EXPECT_EQ(half, before);
  here_->post(2, &value, sizeof value);
  EXPECT_TRUE(soon([&] { return there_->take(2).has_value(); }));
}

TEST_P(SocketsLink, AWithdrawnSendLeavesTheRestAlone) {
  std::vector<std::uint32_t> came(10'000'000);
  Receiving never = there_->recv(1, came.data(), came.size() * 4);
  {
    auto sent = numbers(came.size(), 1);
    { const Sending withdrawn = here_->send(1, sent.data(), sent.size() * 4); }
    std::fill(sent.begin(), sent.end(), 0);
  }
  const std::uint32_t value = 7;
  here_->post(1, &value, sizeof value);
  here_->post(2, &value, sizeof value);
  for (const Key key : {2, 1}) {
    EXPECT_TRUE(soon([&] {
      (void)here_->is_flushed();  // goes on sending
      return there_->take(key).has_value();
    })) << key;
  }
  EXPECT_FALSE(never.test());
  const auto end = std::find(came.begin(), came.end(), 0U);
  EXPECT_EQ((end - came.begin()) * 4 % static_cast<std::ptrdiff_t>(kFrameBytes), 0) << "whole frames";
  EXPECT_TRUE(std::equal(came.begin(), end, numbers(came.size(), 1).begin())) << "of what was there before";
}

/// Messages that no receive will match are not kept forever.
TEST_P(SocketsLink, MessageWithdrawnBeforeItsReceiveIsDropped) {
  const auto sent = numbers(10'000'000, 1);
  {
    const Sending withdrawn = here_->send(1, sent.data(), sent.size() * 4);
    EXPECT_TRUE(soon([&] { return there_->has_arrived(1, ~Key{0}); }));
  }
  EXPECT_TRUE(soon([&] {
    (void)here_->is_flushed();  // goes on sending
    return !there_->has_arrived(1, ~Key{0});
  }));
}

TEST_P(SocketsLink, ReducesArrivingData) {
  const auto sum = [&](auto zero, DType dtype, ReduceOp op) {
    using Element = decltype(zero);
    std::vector<Element> incoming(100'001), operand(incoming.size()), expected(incoming.size()), out(incoming.size());
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      incoming[i] = static_cast<Element>(i % 1000 + 1);
      operand[i] = static_cast<Element>(i % 77 + 5);
    }
    reduce(expected.data(), operand.data(), incoming.data(), out.size(), dtype, op);
    const auto data = operand;
    const std::size_t bytes = out.size() * sizeof(Element);
    for (const bool is_first : {true, false}) {
      std::optional<Receiving> into;
      const auto receive = [&] {
        into.emplace(there_->recv_reduce(1, out.data(), operand.data(), out.size(), dtype, op));
      };
      if (is_first) receive();
      Sending message = here_->send(1, incoming.data(), bytes);
      if (!is_first) {
        EXPECT_TRUE(soon([&] { return there_->has_arrived(1, ~Key{0}); }));
        receive();
      }
      EXPECT_TRUE(soon([&] { return static_cast<int>(message.test()) + static_cast<int>(into->test()) == 2; }));
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), bytes), 0) << name(dtype);
      EXPECT_EQ(operand, data);
    }
  };
  sum(0.0F, DType::kF32, ReduceOp::kSum);
  sum(std::uint16_t{0}, DType::kF16, ReduceOp::kMax);
  sum(std::int64_t{0}, DType::kI64, ReduceOp::kProduct);
  sum(std::uint32_t{0}, DType::kU32, ReduceOp::kBitAnd);
  sum(std::uint64_t{0}, DType::kU64, ReduceOp::kBitXor);
  sum(std::int16_t{0}, DType::kI16, ReduceOp::kBitOr);
}

TEST_P(SocketsLink, AReductionCanBeInPlace) {
  std::vector<std::int32_t> values(100'000, 2);
  const std::vector<std::int32_t> incoming(values.size(), 5);
  Receiving into = there_->recv_reduce(1, values.data(), values.data(), values.size(), DType::kI32, ReduceOp::kSum);
  Sending message = here_->send(1, incoming.data(), incoming.size() * 4);
  EXPECT_TRUE(soon([&] { return static_cast<int>(message.test()) + static_cast<int>(into.test()) == 2; }));
  EXPECT_EQ(values, std::vector<std::int32_t>(values.size(), 7));
}

TEST_P(SocketsLink, MessagesSentBeforeTheEndAreRead) {
  const std::uint32_t value = 7;
  here_->post(1, &value, sizeof value);
  EXPECT_FALSE(there_->is_closed());
  EXPECT_EQ(there_->end_reason(), "");
  here_.reset();
  EXPECT_TRUE(soon([&] { return there_->is_closed(); }));
  EXPECT_EQ(there_->end_reason(), "it closed the connection");
  EXPECT_TRUE(there_->take(1).has_value());
  there_->post(1, &value, sizeof value);
  EXPECT_TRUE(there_->is_flushed()) << "no process is there to take it";
}

TEST_P(SocketsLink, ABrokenConnectionReportsIt) {
  const std::uint32_t value = 7;
  there_->post(9, &value, sizeof value);  // unread at the other end when it goes
  here_.reset();
  EXPECT_TRUE(soon([&] { return there_->is_closed(); }));
  EXPECT_EQ(there_->end_reason(), "it broke the connection off (Connection reset by peer)");
}

INSTANTIATE_TEST_SUITE_P(Over, SocketsLink, testing::Values(kUnix, kTcp),
                         [](const auto& connect) { return connect.param == kUnix ? "Unix" : "Tcp"; });

// A call sends a bounded number of bytes however fast the peer reads: the caller has other peers.
TEST(SocketsLinkAlone, ACallSendsSoMuchAtMost) {
  auto [end, peer] = test::tcp_socket_pair();
  Link link(std::move(end));
  std::size_t came = 0;
  std::atomic<bool> has_begun{false};
  std::thread reader([&, &from = peer] {
    std::vector<std::byte> into(std::size_t{1} << 20);
    has_begun = true;
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    for (ssize_t got = -1; got != 0 && !deadline.passed();) {
      got = ::recv(from.get(), into.data(), into.size(), 0);
      if (got > 0) came += static_cast<std::size_t>(got);
    }
  });
  while (!has_begun) std::this_thread::yield();
  const std::vector<std::byte> data(std::size_t{512} << 20);
  const Sending out = link.send(1, data.data(), data.size());
  EXPECT_EQ(shutdown(link.descriptor(), SHUT_WR), 0);
  reader.join();
  EXPECT_GT(came, 0U);
  EXPECT_LE(came, std::size_t{9} << 20);
}

/// A socket that is not connected yet refuses to send, and its link is then given one that is.
TEST(SocketsLinkAlone, UnsentMessageIsDropped) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  ASSERT_GE(socket, 0);
  Link link((UniqueDescriptor(socket)));
  {
    const std::vector<std::uint32_t> data(100, 7);
    EXPECT_THROW((void)link.send(1, data.data(), 400), TransportError);
    EXPECT_THROW(link.post(2, data.data(), 400), TransportError);
  }
  test::SocketPair ends = test::unix_socket_pair();
  ASSERT_EQ(dup2(ends[0].get(), socket), socket);
  Link other(std::move(ends[1]));
  EXPECT_TRUE(link.is_flushed());
  EXPECT_FALSE(other.has_arrived(1, ~Key{0})) << "its data are gone";
  EXPECT_FALSE(other.has_arrived(2, ~Key{0})) << "its sender knows that it was not sent";
}

}  // namespace
}  // namespace farandole::sockets
