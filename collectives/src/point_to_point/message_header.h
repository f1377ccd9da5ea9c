// SPDX-License-Identifier: Apache-2.0
// Format of point-to-point messages on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/core/dtype.h"

namespace farandole {

/// Tags of the program, and tags of Farandole's own messages, which never match each other.
enum class MessageSpace : std::uint8_t {
  kProgram,
  kCreation,  ///< agreement on a new communicator, see Communicator::of_members
};

/// Start of every transport message in the header lane. The payload of a kShort message follows immediately. A kLong
/// message is only announced; its receiver answers once a receive matches.
struct MessageHeader {
  enum class Kind : std::uint8_t {
    kShort,    ///< a message, with its payload
    kLong,     ///< announces a message, whose payload the sender keeps
    kReady,    ///< answer: the receive of the payload is posted in the payload lane
    kTaken,    ///< answer: the receiver has copied the payload from the sender's memory
    kRefused,  ///< answer: the receive expects `count` elements of `dtype`; nothing was received
    kClosed,   ///< answer: the receiver has destroyed its communicator
  };
  static constexpr std::uint64_t kNoWindow = ~0ULL;

  Kind kind = Kind::kShort;
  DType dtype = DType::kU8;
  MessageSpace space = MessageSpace::kProgram;
  std::uint8_t unused = 0;
  std::int32_t tag = 0;
  std::uint64_t communicator = 0;    ///< id
  std::uint64_t generation = 0;      ///< of the communicator
  std::uint64_t count = 0;           ///< elements
  std::uint64_t number = 0;          ///< chosen by the sender of a kLong message; answers repeat it
  std::uint64_t address = 0;         ///< of a kLong message's payload, in the sender's address space
  std::uint64_t window = kNoWindow;  ///< offset of the payload in the sender's arena, if it lies in a window
};
static_assert(sizeof(MessageHeader) == 56);

/// Longest payload that travels with its header. The sender copies such a payload, so the send is complete immediately.
/// Longer messages cost a round trip between the ranks, and no copy in the sender.
inline constexpr std::size_t kMaxShortBytes = 8192;

}  // namespace farandole
