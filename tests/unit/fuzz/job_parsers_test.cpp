// SPDX-License-Identifier: Apache-2.0
// Parsers of messages between the processes of a job, fed with slightly damaged messages.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "faults/peer_message_checks.h"
#include "fuzz.h"
#include "job/agreement.h"
#include "local/rendezvous.h"
#include "request.h"
#include "socket_pair.h"
#include "sockets/link.h"

namespace farandole::fuzz {
namespace {

template <class Value>
std::string raw(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A frame of a link.
std::string frame(std::uint64_t key, std::uint64_t bytes, std::uint64_t offset, const std::string& payload) {
  return raw(sockets::FrameHeader{key, bytes, offset, payload.size()}) + payload;
}

/// Lets a process that waits for two messages, of which it reduces one, read this stream, as many bytes at a time as
/// its first byte says.
void read_stream(const std::string& stream) {
  test::SocketPair ends = test::unix_socket_pair();
  std::vector<char> few(8);
  std::vector<float> sums(75);
  sockets::Link link(std::move(ends[1]));
  std::vector<sockets::Receiving> receives;
  receives.push_back(link.recv(1, few.data(), few.size()));
  receives.push_back(link.recv_reduce(2, sums.data(), sums.data(), sums.size(), DType::kF32, ReduceOp::kSum));
  const std::size_t most = stream.empty() ? 1 : 1 + static_cast<unsigned char>(stream[0]);
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t bytes = std::min(most, stream.size() - at);
    ASSERT_EQ(send(ends[0].get(), stream.data() + at, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    at += bytes;
    for (sockets::Receiving& receive : receives) (void)receive.test();
    (void)link.take(3);
  }
}

TEST(Fuzz, Frames) {
  const std::string first(101, 'a'), second(99, 'b'), third(100, 'c');
  const std::string long_message =
      frame(2, 300, 0, first) + frame(2, 300, 101, second) + frame(3, 5, 0, "hello") + frame(2, 300, 200, third);
  run({.share = 15,
       .corpus = {frame(1, 8, 0, "01234567"), long_message, frame(3, 0, 0, "") + frame(1, 8, 0, "01234567"),
                  long_message + long_message, frame(2, 300, 0, first) + frame(2, 300, 101, "") + long_message},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse = read_stream});
}

TEST(Fuzz, Hellos) {
  run({.share = 7,
       .corpus = {raw(local::make_hello(0, 1)), raw(local::make_hello(3, 192))},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse =
           [](const std::string& input) {
             const local::Hello hello = local::parse_hello(std::as_bytes(std::span(input)));
             EXPECT_GE(hello.process, 0);
             EXPECT_LT(hello.process, hello.processes);
             EXPECT_LT(hello.layout_text().size(), sizeof hello.layout);
           }});
}

/// Parses control messages in a job of two processes, with 1 and 2 ranks.
TEST(Fuzz, ControlMessages) {
  const Topology topology({{0, 1, 11, "a", false}, {0, 2, 12, "a", false}});
  ControlMessage fault;
  fault.process = 1;
  fault.rank = 2;
  fault.error_kind = static_cast<std::uint32_t>(ErrorKind::kPeerLost);
  std::string_view("rank 2 died").copy(fault.text, sizeof fault.text);
  ControlMessage reply;
  reply.kind = ControlMessage::Kind::kReply;
  reply.process = 1;
  reply.rank = 1;
  reply.communicator = 4095;
  reply.sequence = 1234567;
  ControlMessage leave;
  leave.kind = ControlMessage::Kind::kLeave;
  leave.process = 1;
  leave.rank = 1;
  run({.share = 8,
       .corpus = {raw(fault), raw(reply), raw(leave)},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse =
           [&](const std::string& input) {
             const ControlMessage control = parse_control_message(std::as_bytes(std::span(input)), 1);
             check_control_message(control, topology);
             EXPECT_EQ(control.process, 1);
             EXPECT_GE(topology.rank(control.rank).process, 0);
             EXPECT_LE(control.communicator, ControlMessage::kNoCommunicator);
             EXPECT_NE(name(static_cast<ErrorKind>(control.error_kind)), "");
             EXPECT_LT(std::string_view(control.text).size(), sizeof control.text);
           }});
}

TEST(Fuzz, Agreements) {
  const Settings settings;
  const std::string agreed = encode_agreed(settings);
  run({.share = 5,
       .corpus = {encode({agreed, "", ""}), encode({agreed, "{\"format\": 1}", ""}), encode({agreed, "", "no file"})},
       .mutate =
           [&](Mutator& mutator, const Corpus& corpus) {
             return mutator.one_in(2) ? mutator.bytes(corpus) : encode({mutator.json({agreed}), "", ""});
           },
       .parse =
           [](const std::string& input) {
             Settings adopted;
             (void)adopt_agreed(adopted, decode_agreement(input).settings);
           }});
}

TEST(Fuzz, Announcements) {
  RequestSpec gradients;
  gradients.name = "gradients";
  gradients.kind = RequestKind::kAllreduce;
  gradients.tensors = {{DType::kF32, {3, 4}}, {DType::kBF16, {}}, {DType::kI64, {1, 0, 7}}};
  RequestSpec bits;
  bits.name = "bits";
  bits.kind = RequestKind::kAllreduce;
  bits.op = ReduceOp::kBitOr;
  bits.tensors = {{DType::kU64, {8}}};
  RequestSpec set;
  set.name = "process sets";
  set.kind = RequestKind::kAddSet;
  set.arguments = {0, 3, 5};
  Announcements announcements;
  announcements.requests = {{std::make_shared<RequestSpec>(gradients), true},
                            {std::make_shared<RequestSpec>(bits), false},
                            {std::make_shared<RequestSpec>(set), false}};
  Announcements leaving;
  leaving.joins = true;
  leaving.departs = Departure::kLeavesJob;
  leaving.waits_for = {"gradients", "x"};
  run({.share = 7,
       .corpus = {announcements.encode(), leaving.encode(), Announcements().encode()},
       .mutate =
           [](Mutator& mutator, const Corpus& corpus) {
             // An array in an array in an array, …
             if (mutator.one_in(100)) return std::string(std::size_t{1} << mutator.below(19), '\x81');
             return mutator.bytes(corpus);
           },
       .parse =
           [](const std::string& input) {
             for (const Announcement& announcement : Announcements::decode(input).requests) {
               EXPECT_FALSE(describe(*announcement.spec).empty());
               EXPECT_TRUE(is_reduce_op(announcement.spec->op));
               for (const TensorSpec& tensor : announcement.spec->tensors)
                 EXPECT_LT(tensor.size_in_bytes(), 1ULL << 48);
               if (announcement.spec->kind == RequestKind::kRemoveSet) {
                 EXPECT_EQ(announcement.spec->arguments.size(), 1U);
               }
             }
           }});
}

}  // namespace
}  // namespace farandole::fuzz
