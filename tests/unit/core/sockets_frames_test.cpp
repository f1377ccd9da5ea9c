// SPDX-License-Identifier: Apache-2.0
// A link whose peer is the test itself, which writes valid and invalid frames to the socket, byte by byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "socket_pair.h"
#include "sockets/link.h"

namespace farandole::sockets {
namespace {

using Connect = test::SocketPair (*)();
constexpr Connect kFramesUnix = &test::unix_socket_pair;
constexpr Connect kFramesTcp = &test::tcp_socket_pair;

std::string frame(Key key, std::uint64_t message_bytes, std::uint64_t offset, const std::string& payload) {
  const FrameHeader header{key, message_bytes, offset, payload.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload;
}

class SocketsFrames : public testing::TestWithParam<Connect> {
 protected:
  void SetUp() override { connect(); }
  void connect() {
    link_.reset();
    test::SocketPair ends = GetParam()();
    peer_ = std::move(ends[0]);
    link_ = std::make_unique<Link>(std::move(ends[1]), "process 3", kept_);
  }
  /// Writes `bytes`; blocks until the link can read them.
  void write(const std::string& bytes) {
    ASSERT_EQ(send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    if (!bytes.empty()) wait_for_bytes(link_->descriptor());
  }
  void wait_for_bytes(int socket) {
    pollfd entry{socket, POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 20'000), 1);
  }
  /// Reads until nothing is left, so that the next bytes come alone.
  void look() {
    for (int turn = 0; turn < 3; ++turn) (void)link_->is_closed();
  }
  /// Error text with which the link refuses the bytes that it has read. Later calls must fail with the same text.
  std::string refusal() {
    std::string text;
    for (int turn = 0; turn < 10'000 && text.empty(); ++turn) {
      try {
        (void)link_->is_closed();
      } catch (const TransportError& error) {
        text = error.message();
      }
    }
    EXPECT_EQ(link_->end_reason(), text);
    EXPECT_THROW((void)link_->is_closed(), TransportError);
    EXPECT_TRUE(link_->is_flushed()) << "a process that ends would wait for it";
    return text;
  }

  UniqueDescriptor peer_;
  KeptBytes kept_{100'000};
  std::unique_ptr<Link> link_;
};

/// Three messages, of which one is cut into two frames and one is reduced, in two writes, cut at every byte.
TEST_P(SocketsFrames, CutAnywhere) {
  const std::vector<std::int64_t> incoming{1, -2, 3, -4};
  const std::string elements(reinterpret_cast<const char*>(incoming.data()), 32);
  const std::string bytes = frame(1, 10, 0, "01234") + frame(2, 32, 0, elements.substr(0, 13)) +
                            frame(1, 10, 5, "56789") + frame(3, 0, 0, "") + frame(2, 32, 13, elements.substr(13)) +
                            frame(1, 3, 0, "abc");
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    std::string first(10, ' ');
    std::vector<std::int64_t> sum(4, 10);
    Receiving into_first = link_->recv(1, first.data(), first.size());
    Receiving into_sum = link_->recv_reduce(2, sum.data(), sum.data(), 4, DType::kI64, ReduceOp::kSum);
    write(bytes.substr(0, cut));
    look();
    write(bytes.substr(cut));
    look();
    EXPECT_TRUE(into_first.test() && into_sum.test()) << cut;
    EXPECT_EQ(first, "0123456789") << cut;
    EXPECT_EQ(sum, (std::vector<std::int64_t>{11, 8, 13, 6})) << cut;
    EXPECT_EQ(link_->take(3)->size(), 0U) << cut;
    EXPECT_EQ(link_->take(1)->size(), 3U) << cut;
  }
}

template <class Element>
void reduce_byte_by_byte(DType dtype, const std::function<void(const std::string&)>& write, Link& link) {
  const std::vector<Element> incoming{1, 2, 3, 4, 5}, operand{10, 20, 30, 40, 50};
  std::vector<Element> sum(5), expected(5);
  reduce(expected.data(), operand.data(), incoming.data(), 5, dtype, ReduceOp::kSum);
  const std::string bytes(reinterpret_cast<const char*>(incoming.data()), sizeof(Element) * 5);
  Receiving into = link.recv_reduce(1, sum.data(), operand.data(), 5, dtype, ReduceOp::kSum);
  for (const char byte : frame(1, bytes.size(), 0, bytes)) {
    EXPECT_FALSE(into.test());
    write(std::string(1, byte));
  }
  EXPECT_TRUE(into.test());
  EXPECT_EQ(sum, expected);
}

TEST_P(SocketsFrames, ElementsThatComeByteByByteAreReduced) {
  const auto write_byte = [this](const std::string& byte) { write(byte); };
  reduce_byte_by_byte<float>(DType::kF32, write_byte, *link_);
  reduce_byte_by_byte<std::uint16_t>(DType::kF16, write_byte, *link_);
  reduce_byte_by_byte<std::int64_t>(DType::kI64, write_byte, *link_);
  reduce_byte_by_byte<std::uint8_t>(DType::kU8, write_byte, *link_);
  reduce_byte_by_byte<std::uint32_t>(DType::kU32, write_byte, *link_);
  reduce_byte_by_byte<std::uint64_t>(DType::kU64, write_byte, *link_);
}

/// A transfer that comes in the middle of a frame, and in the middle of an element, gets what came before and after.
TEST_P(SocketsFrames, AskedForInTheMiddle) {
  const std::vector<std::int32_t> incoming{1, 2, 3};
  const std::string bytes = frame(1, 12, 0, std::string(reinterpret_cast<const char*>(incoming.data()), 12));
  for (std::size_t cut = sizeof(FrameHeader); cut <= bytes.size(); ++cut) {
    for (const bool is_reduced : {false, true}) {
      std::vector<std::int32_t> out(3, 10);
      write(bytes.substr(0, cut));
      look();
      Receiving into = is_reduced ? link_->recv_reduce(1, out.data(), out.data(), 3, DType::kI32, ReduceOp::kSum)
                                  : link_->recv(1, out.data(), 12);
      write(bytes.substr(cut));
      look();
      EXPECT_TRUE(into.test());
      EXPECT_EQ(out, is_reduced ? (std::vector<std::int32_t>{11, 12, 13}) : incoming) << cut;
    }
  }
  EXPECT_TRUE(kept_.take(90'000)) << "what was kept has been given back";
  kept_.give_back(90'000);
}

TEST_P(SocketsFrames, WithdrawnByTheReceiverInTheMiddleOfAFrame) {
  std::string untouched(10, ' ');
  std::vector<float> sum(3, 1.0F);
  {
    const Receiving withdrawn = link_->recv(1, untouched.data(), untouched.size());
    const Receiving reduction = link_->recv_reduce(2, sum.data(), sum.data(), 3, DType::kF32, ReduceOp::kSum);
    write(frame(2, 12, 0, std::string(5, '\0')));
    write(frame(1, 10, 0, "0123456789").substr(0, sizeof(FrameHeader) + 4));
    look();
  }
  write("456789" + frame(2, 12, 5, std::string(7, '\0')) + frame(1, 2, 0, "ab"));
  look();
  EXPECT_EQ(link_->take(1)->size(), 2U);
  EXPECT_EQ(untouched, "0123      ");
  EXPECT_FALSE(link_->has_arrived(2, ~Key{0}));
}

/// The peer reads all that the link writes.
TEST_P(SocketsFrames, WithdrawnByTheSenderInTheMiddleOfAFrame) {
  std::string data(8 << 20, 'x');
  const char last = 'z';
  {
    const Sending withdrawn = link_->send(1, data.data(), data.size());
    link_->post(2, &last, 1);
  }
  std::fill(data.begin(), data.end(), 'y');
  std::string came;
  while (came.empty() || came.back() != last) {
    (void)link_->is_flushed();
    std::string more(1 << 20, '\0');
    wait_for_bytes(peer_.get());
    const ssize_t got = recv(peer_.get(), more.data(), more.size(), 0);
    ASSERT_GT(got, 0);
    came.append(more, 0, static_cast<std::size_t>(got));
  }
  std::size_t of_message = 0;
  bool is_withdrawn = false;
  for (std::size_t at = 0; at < came.size();) {
    FrameHeader header;
    came.copy(reinterpret_cast<char*>(&header), sizeof header, at);
    at += sizeof header;
    if (header.key == 1) {
      EXPECT_EQ(header.offset, of_message);
      EXPECT_EQ(came.substr(at, header.payload_bytes), std::string(header.payload_bytes, 'x'));
      of_message += header.payload_bytes;
      is_withdrawn = is_withdrawal(header);
    }
    at += header.payload_bytes;
  }
  EXPECT_GT(of_message, 0U);
  EXPECT_LT(of_message, data.size());
  EXPECT_TRUE(is_withdrawn);
}

TEST_P(SocketsFrames, AWithdrawalLetsTheKeyGoOn) {
  std::string first(10, ' '), second(3, ' ');
  Receiving into_first = link_->recv(1, first.data(), first.size());
  Receiving into_second = link_->recv(1, second.data(), second.size());
  write(frame(1, 10, 0, "01234") + frame(1, 10, 5, "") + frame(1, 3, 0, "abc"));
  write(frame(2, 60'000, 0, std::string(59'999, 'x')) + frame(2, 60'000, 59'999, "") + frame(2, 1, 0, "y"));
  look();
  EXPECT_FALSE(into_first.test());
  EXPECT_TRUE(into_second.test());
  EXPECT_EQ(second, "abc");
  EXPECT_EQ(link_->take(2)->size(), 1U);
  EXPECT_TRUE(kept_.take(90'000)) << "what was kept has been given back";
  kept_.give_back(90'000);
}

TEST_P(SocketsFrames, InvalidFramesNameTheProcess) {
  struct Case {
    std::string name;
    std::string bytes;
    std::string reason;
  };
  const auto header = [](std::uint64_t message, std::uint64_t offset, std::uint64_t payload) {
    return frame(1, message, offset, "").replace(24, 8, reinterpret_cast<const char*>(&payload), 8);
  };
  const std::string half = frame(1, 8, 0, "0123");
  const std::vector<Case> cases{
      {"longer than any", header(1 << 30, 0, kFrameBytes + 1), "a frame of 262145 bytes"},
      {"in the middle", header(100, 50, 10), "byte 50 of a message of 100 bytes that does not go on"},
      {"beyond the end", header(8, 0, 9), "9 bytes of payload at byte 0 of a message of 8"},
      {"far beyond", header(8, ~0ULL - 4, 8), "at byte 18446744073709551611 of a message of 8"},
      {"no progress", header(8, 0, 0), "0 bytes of payload"},
      {"too long", header(~0ULL, 0, 8), "a message of 18446744073709551615 bytes"},
      {"another length", half + frame(1, 9, 4, "4567"), "byte 4 of a message of 9"},
      {"a gap", half + frame(1, 8, 5, "567"), "byte 5 of a message of 8"},
      {"begun again", half + half, "byte 0 of a message of 8"},
      {"twice", half + frame(1, 8, 4, "4567") + header(8, 8, 0), "0 bytes of payload at byte 8"},
      {"withdrawn elsewhere", half + header(8, 5, 0), "byte 5 of a message of 8"},
      {"withdrawn and not sent", header(8, 5, 0), "byte 5 of a message of 8"},
  };
  for (const Case& each : cases) {
    connect();
    write(each.bytes);
    EXPECT_THAT(refusal(), testing::AllOf(testing::HasSubstr("process 3 has sent what no process"),
                                          testing::HasSubstr(each.reason)))
        << each.name;
  }
}

TEST_P(SocketsFrames, HalfAMessageAndTheEnd) {
  const std::string bytes = frame(1, 8, 0, "0123") + frame(1, 8, 4, "4567");
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    connect();
    write(bytes.substr(0, cut));
    ASSERT_EQ(shutdown(peer_.get(), SHUT_WR), 0);
    for (int turn = 0; turn < 10'000 && !link_->is_closed();) ++turn;
    EXPECT_EQ(link_->end_reason(), "it closed the connection in the middle of a message") << cut;
    EXPECT_FALSE(link_->take(1).has_value());
  }
}

TEST_P(SocketsFrames, UnexpectedBytesAreBounded) {
  std::vector<char> wanted(60'000);
  write(frame(1, 60'000, 0, std::string(30'000, 'x')));
  write(frame(1, 60'000, 30'000, std::string(30'000, 'x')));
  look();
  EXPECT_TRUE(link_->recv(1, wanted.data(), wanted.size()).test()) << "and is given back when it is asked for";
  for (int message = 0; message < 3; ++message) write(frame(2, 30'000, 0, std::string(30'000, 'x')));
  look();
  EXPECT_FALSE(link_->is_closed());
  write(frame(2, 30'000, 0, std::string(30'000, 'x')));
  EXPECT_THAT(refusal(), testing::HasSubstr("more than the 100000 bytes that this process keeps"));
  link_.reset();
  EXPECT_TRUE(kept_.take(100'000)) << "the link has given all of it back";
}

TEST_P(SocketsFrames, UnexpectedKeysAreBounded) {
  for (Key key = 0; key < 100; ++key) write(frame(key, 0, 0, ""));
  EXPECT_THAT(refusal(), testing::HasSubstr("more than the 100000 bytes"));
}

INSTANTIATE_TEST_SUITE_P(Over, SocketsFrames, testing::Values(kFramesUnix, kFramesTcp),
                         [](const auto& connect) { return connect.param == kFramesUnix ? "Unix" : "Tcp"; });

}  // namespace
}  // namespace farandole::sockets
