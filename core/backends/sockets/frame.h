// SPDX-License-Identifier: Apache-2.0
// Framing of the messages on a connection between two processes, and errors as messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "farandole/core/error.h"

namespace farandole::sockets {

/// Names a stream of messages on a connection. Messages with equal keys arrive in the order in which they were sent;
/// messages with different keys may overtake each other.
using Key = std::uint64_t;

/// Precedes the payload of each frame. A message is sent as consecutive frames of the same key, from offset 0 to
/// `message_bytes`; frames of messages with other keys may lie between them. The fields are in the byte order of the
/// host, because both ends run the same build.
struct FrameHeader {
  Key key = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t offset = 0;         ///< position of this frame's payload in the message
  std::uint64_t payload_bytes = 0;  ///< length of this frame's payload; 0 for an empty message or a withdrawal
};
static_assert(sizeof(FrameHeader) == 32);

/// True if the sender withdraws the message after sending its first `offset` bytes: the rest never comes.
inline bool is_withdrawal(const FrameHeader& header) {
  return header.payload_bytes == 0 && header.message_bytes > 0;
}

/// Maximum payload of a frame. A short message waits for at most one frame of a long message, which takes 2 ms at 1
/// Gbit/s.
inline constexpr std::size_t kFrameBytes = 256 * 1024;
/// Maximum length of a message: more than the address space of a process.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 48;

/// Decodes a header and checks that the payload lies inside the message.
/// @throws TransportError  no process of the job sends such a header; the text says why
FrameHeader parse_frame_header(std::span<const std::byte, sizeof(FrameHeader)> bytes);

/// Returns the error's kind, followed by at most 4 KiB of the error's text.
std::string encode_error(const Error& error);
/// Throws the error that `encode_error` has encoded in the sending process.
/// @param sender  for messages: "process 0"   @throws Error  the decoded error   @throws TransportError  `bytes` is not
/// an encoded error
[[noreturn]] void throw_encoded_error(std::span<const std::byte> bytes, const std::string& sender);

}  // namespace farandole::sockets
