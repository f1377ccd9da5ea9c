// SPDX-License-Identifier: Apache-2.0
// A point-to-point message as one rank sees it: a send or a receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/core/buffer.h"
#include "operation/group.h"
#include "operation/work_state.h"
#include "point_to_point/message_header.h"

namespace farandole {

/// Tags of MessageSpace::kCreation: what the new communicator is for.
enum class CreationTag : std::int32_t {
  kOfMembers,       ///< Communicator::of_members
  kDeviceMessages,  ///< messages of device memory, see DeviceMessages
};

/// Arguments of a send or a receive, without the memory.
struct MessageSpec {
  enum class Direction : std::uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  MessageSpace space = MessageSpace::kProgram;
  DType dtype = DType::kU8;
  int peer = 0;  ///< rank in the communicator; of a receive also Communicator::kAnySource
  int tag = 0;
  std::uint64_t count = 0;

  std::size_t bytes() const { return count * size_in_bytes(dtype); }
};

/// @param call  name of the function, for the error   @param data  address of the values
/// @throws InvalidArgument  no message can have this peer, tag and address
void check_arguments(std::string_view call, const MessageSpec& spec, const void* data, const Group& group);
/// "send of 1000 f32 with tag 7 to rank 3", for the flight recorder.
FlightSubject subject_of(const MessageSpec& spec);
/// "a message of 1000 f32 with tag 7".
std::string describe_content(const MessageSpec& spec);
/// Text that says who waits for whom: "rank 2 (host a, pid 5) waits for a message of 1000 f32 with tag 7 from rank 0
/// (host a, pid 4) in communicator 'pairs' of 2 ranks". @param label  of the communicator
std::string describe_wait(const MessageSpec& spec, const Group& group, const std::string& label);

/// A send of a long payload, or a receive. Const after submission, except for the members that the hub's mutex guards
/// and the members of Work::State.
class Message : public Work::State {
 public:
  Message(const MessageSpec& arguments, const Group& members, const std::string& name)
      : spec(arguments), group(members), label(name) {}

  const MessageSpec spec;
  const Group& group;        ///< the owner's
  const std::string& label;  ///< the owner's text for the communicator
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t number = 0;  ///< counts the messages of this rank; set by the hub
  FlightRecorder::Id record = 0;
  bool awaits_header = false;  ///< the peers' headers are read for this message; guarded by the hub's mutex

  bool is_send() const { return spec.direction == MessageSpec::Direction::kSend; }
  /// Job rank of the peer; nothing for a receive from any source.
  std::optional<int> peer() const;
};

}  // namespace farandole
