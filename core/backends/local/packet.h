// SPDX-License-Identifier: Apache-2.0
// What a socket between two processes carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farandole::local {

/// What a message is for. Messages of one key arrive in the order in which they were sent.
using Key = std::uint64_t;

/// What comes before the payload of each packet.
struct PacketHeader {
  Key key = 0;
  std::uint64_t bytes = 0;   ///< of the message
  std::uint64_t offset = 0;  ///< of this packet in it
};

/// Of payload; several packets fit into a socket's buffer of the usual 208 KiB.
inline constexpr std::size_t kPacketBytes = 32 * 1024;
/// Of a message: more than a process has address space for.
inline constexpr std::uint64_t kLargestMessage = std::uint64_t{1} << 48;

struct Packet {
  PacketHeader header;
  std::span<const std::byte> payload;  ///< lies in the message, and is empty only if that is
};

/// @param packet  as it came   @throws TransportError  says what is wrong with it
Packet parse_packet(std::span<const std::byte> packet);

}  // namespace farandole::local
