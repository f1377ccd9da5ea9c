// SPDX-License-Identifier: Apache-2.0
#include "sockets/frame.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "farandole/core/error.h"

namespace farandole::sockets {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;

}  // namespace

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

std::string encode_error(const Error& error) {
  const auto kind = static_cast<std::uint32_t>(error.kind());
  std::string message(reinterpret_cast<const char*>(&kind), sizeof kind);
  message += std::string_view(error.message()).substr(0, kMaxTextBytes);
  return message;
}

void throw_encoded_error(std::span<const std::byte> bytes, const std::string& sender) {
  std::uint32_t kind = 0;
  if (bytes.size() < sizeof kind || bytes.size() > sizeof kind + kMaxTextBytes) {
    throw TransportError(fmt::format("{} has sent an error of {} bytes", sender, bytes.size()));
  }
  std::memcpy(&kind, bytes.data(), sizeof kind);
  if (kind > static_cast<std::uint32_t>(ErrorKind::kInternal)) {
    throw TransportError(fmt::format("{} has sent an error of kind {}", sender, kind));
  }
  const auto text = bytes.subspan(sizeof kind);
  throw_error(static_cast<ErrorKind>(kind), std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace farandole::sockets
