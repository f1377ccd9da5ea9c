// SPDX-License-Identifier: Apache-2.0
#include "sockets/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "farandole/core/error.h"

namespace farandole::sockets {

FrameHeader parse_frame_header(std::span<const std::byte, sizeof(FrameHeader)> bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.message_bytes > kMaxMessageBytes) {
    throw TransportError(fmt::format("a message of {} bytes announced; messages have at most {}", header.message_bytes,
                                     kMaxMessageBytes));
  }
  if (header.payload_bytes > kFrameBytes) {
    throw TransportError(
        fmt::format("a frame of {} bytes announced; frames have at most {}", header.payload_bytes, kFrameBytes));
  }
  const bool lies_in_message =
      header.offset <= header.message_bytes && header.payload_bytes <= header.message_bytes - header.offset;
  const bool is_inside_message = header.offset > 0 && header.offset < header.message_bytes;
  if (!lies_in_message || (is_withdrawal(header) && !is_inside_message)) {
    throw TransportError(fmt::format("a frame with {} bytes of payload at byte {} of a message of {} bytes",
                                     header.payload_bytes, header.offset, header.message_bytes));
  }
  return header;
}

}  // namespace farandole::sockets
