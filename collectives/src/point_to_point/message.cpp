// SPDX-License-Identifier: Apache-2.0
#include "point_to_point/message.h"

#include <fmt/core.h>

#include "farandole/core/error.h"

namespace farandole {
namespace {

std::uint64_t pack(std::uint32_t high, std::uint32_t low) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

FlightSubject::Words pack(const MessageSpec& spec) {
  const std::uint32_t kinds = static_cast<std::uint32_t>(spec.direction) << 16 |
                              static_cast<std::uint32_t>(spec.space) << 8 | static_cast<std::uint32_t>(spec.dtype);
  return {spec.count, pack(static_cast<std::uint32_t>(spec.peer), static_cast<std::uint32_t>(spec.tag)), kinds};
}

MessageSpec unpack(const FlightSubject::Words& words) {
  MessageSpec spec;
  spec.count = words[0];
  spec.peer = static_cast<std::int32_t>(words[1] >> 32);
  spec.tag = static_cast<std::int32_t>(words[1] & 0xffffffffU);
  spec.direction = static_cast<MessageSpec::Direction>(words[2] >> 16);
  spec.space = static_cast<MessageSpace>(words[2] >> 8 & 0xffU);
  spec.dtype = static_cast<DType>(words[2] & 0xffU);
  return spec;
}

std::string describe_record(const FlightSubject::Words& words) {
  const MessageSpec spec = unpack(words);
  const bool is_send = spec.direction == MessageSpec::Direction::kSend;
  const std::string peer = spec.peer == Communicator::kAnySource ? "any rank" : fmt::format("rank {}", spec.peer);
  if (spec.space == MessageSpace::kCreation) {
    const bool is_of_members = spec.tag == static_cast<int>(CreationTag::kOfMembers);
    return fmt::format("{}: message {} {}", is_of_members ? "of_members" : "first message of device memory",
                       is_send ? "to" : "from", peer);
  }
  return fmt::format("{} of {} {} with tag {} {} {}", is_send ? "send" : "receive", spec.count, name(spec.dtype),
                     spec.tag, is_send ? "to" : "from", peer);
}

}  // namespace

void check_arguments(std::string_view call, const MessageSpec& spec, const void* data, const Group& group) {
  const bool is_any = spec.direction == MessageSpec::Direction::kReceive && spec.peer == Communicator::kAnySource;
  if (!is_any && (spec.peer < 0 || spec.peer >= group.size())) {
    throw InvalidArgument(fmt::format("{}: rank {} is not one of 0 … {}, the ranks of this communicator", call,
                                      spec.peer, group.size() - 1));
  }
  if (spec.tag < 0) throw InvalidArgument(fmt::format("{}: tag {} is negative", call, spec.tag));
  if (data == nullptr && spec.count > 0) {
    throw InvalidArgument(fmt::format("{}: the address is null, but there are {} elements", call, spec.count));
  }
}

FlightSubject subject_of(const MessageSpec& spec) {
  return {pack(spec), describe_record};
}

std::string describe_content(const MessageSpec& spec) {
  return fmt::format("a message of {} {} with tag {}", spec.count, name(spec.dtype), spec.tag);
}

std::string describe_wait(const MessageSpec& spec, const Group& group, const std::string& label) {
  const Topology& topology = group.endpoint->topology();
  const std::string self = topology.describe(group.endpoint->rank());
  const std::string peer =
      spec.peer == Communicator::kAnySource ? "any rank" : topology.describe(group.member(spec.peer));
  if (spec.space == MessageSpace::kCreation && spec.tag == static_cast<int>(CreationTag::kDeviceMessages)) {
    return fmt::format(
        "{} waits for {} to make its first send or receive of device memory with this rank in {}; both "
        "ranks must pass device memory, and ranks that wait for each other in a cycle use `exchange`",
        self, peer, label);
  }
  if (spec.space == MessageSpace::kCreation) {
    return fmt::format("{} waits in of_members for {}, which must call of_members with the same ranks of {}", self,
                       peer, label);
  }
  if (spec.direction == MessageSpec::Direction::kSend) {
    return fmt::format("{} waits for {} to receive {} in {}", self, peer, describe_content(spec), label);
  }
  return fmt::format("{} waits for {} from {} in {}", self, describe_content(spec), peer, label);
}

std::optional<int> Message::peer() const {
  return spec.peer == Communicator::kAnySource ? std::nullopt : std::optional(group.member(spec.peer));
}

}  // namespace farandole
