// SPDX-License-Identifier: Apache-2.0
// What processes of a job hear from each other, nearly right.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "agreement.h"
#include "farandole/core/error.h"
#include "from_peers.h"
#include "fuzz.h"
#include "local/hello.h"
#include "local/link.h"
#include "request.h"

namespace farandole::fuzz {
namespace {

template <class Value>
std::string raw(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A packet of a link, with its length before it.
std::string packet(std::uint64_t key, std::uint64_t bytes, std::uint64_t offset, const std::string& payload) {
  const std::string whole = raw(key) + raw(bytes) + raw(offset) + payload;
  return raw(static_cast<std::uint16_t>(whole.size())) + whole;
}

/// Lets a process that waits for two messages hear these packets.
void hear_packets(const std::string& packets) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
  const local::UniqueDescriptor peer(ends[0]);
  std::vector<char> few(8), many(300);
  local::Link link{local::UniqueDescriptor(ends[1])};
  std::vector<local::Receiving> receives;
  receives.push_back(link.recv(1, few.data(), few.size()));
  receives.push_back(link.recv(2, many.data(), many.size()));
  for (std::size_t at = 0; at + sizeof(std::uint16_t) <= packets.size();) {
    std::uint16_t length = 0;
    std::memcpy(&length, packets.data() + at, sizeof length);
    at += sizeof length;
    const std::size_t there = std::min<std::size_t>(length, packets.size() - at);
    ASSERT_EQ(send(peer.get(), packets.data() + at, there, MSG_NOSIGNAL), static_cast<ssize_t>(there));
    at += there;
    for (local::Receiving& receive : receives) (void)receive.test();
  }
  (void)link.take(3);
  (void)link.has_arrived(0, 0);
}

TEST(Fuzz, Packets) {
  const std::string first(100, 'a'), second(100, 'b'), third(100, 'c');
  const std::string long_message =
      packet(2, 300, 0, first) + packet(2, 300, 100, second) + packet(3, 5, 0, "hello") + packet(2, 300, 200, third);
  run({.share = 15,
       .corpus = {packet(1, 8, 0, "01234567"), long_message, packet(3, 0, 0, "") + packet(1, 8, 0, "01234567"),
                  long_message + long_message},
       .mutate = [](Mutator& mutator, const Corpus& corpus) { return mutator.bytes(corpus); },
       .parse = hear_packets});
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

/// What a job with two processes, of 1 and 2 ranks, does with a control message.
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
  RequestSpec set;
  set.name = "process sets";
  set.kind = RequestKind::kAddSet;
  set.arguments = {0, 3, 5};
  Announcements announcements;
  announcements.requests = {{std::make_shared<RequestSpec>(gradients), true},
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
