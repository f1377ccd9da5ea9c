// SPDX-License-Identifier: Apache-2.0
// What a connection between two processes carries: messages, cut into frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farandole::sockets {

/// What a message is for. Messages of one key arrive in the order in which they were sent.
using Key = std::uint64_t;

/// What comes before the payload of each frame, in the byte order of the host: both ends run the same build.
struct FrameHeader {
  Key key = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t offset = 0;         ///< of this frame's payload in the message
  std::uint64_t payload_bytes = 0;  ///< of this frame; 0 in a message without bytes, or one that its sender withdraws
};
static_assert(sizeof(FrameHeader) == 32);

/// True if the sender withdraws the message, of which it has sent the bytes before the offset.
inline bool is_withdrawal(const FrameHeader& header) {
  return header.payload_bytes == 0 && header.message_bytes > 0;
}

/// The most payload of a frame. A short message waits for one frame of a long one, which is 2 ms at 1 Gbit/s.
inline constexpr std::size_t kFrameBytes = 256 * 1024;
/// The most bytes of a message: more than a process has address space for.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 48;

/// The header of a frame whose payload lies in its message.
/// @param bytes  sizeof(FrameHeader) of them   @throws TransportError  says what is wrong with them
FrameHeader parse_frame_header(std::span<const std::byte, sizeof(FrameHeader)> bytes);

}  // namespace farandole::sockets
