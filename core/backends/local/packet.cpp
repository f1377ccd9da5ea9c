// SPDX-License-Identifier: Apache-2.0
#include "local/packet.h"

#include <fmt/format.h>

#include <cstring>

#include "farandole/core/error.h"

namespace farandole::local {

Packet parse_packet(std::span<const std::byte> packet) {
  Packet parsed;
  PacketHeader& header = parsed.header;
  if (packet.size() < sizeof header || packet.size() > sizeof header + kPacketBytes) {
    throw TransportError(fmt::format("a packet of {} bytes; packets have {} to {}", packet.size(), sizeof header,
                                     sizeof header + kPacketBytes));
  }
  std::memcpy(&header, packet.data(), sizeof header);
  parsed.payload = packet.subspan(sizeof header);
  if (header.bytes > kLargestMessage) {
    throw TransportError(
        fmt::format("a message of {} bytes announced; messages have at most {}", header.bytes, kLargestMessage));
  }
  if (header.offset > header.bytes || parsed.payload.size() > header.bytes - header.offset ||
      (parsed.payload.empty() && header.bytes > 0)) {
    throw TransportError(fmt::format("a packet with {} bytes of payload at byte {} of a message of {} bytes",
                                     parsed.payload.size(), header.offset, header.bytes));
  }
  return parsed;
}

}  // namespace farandole::local
