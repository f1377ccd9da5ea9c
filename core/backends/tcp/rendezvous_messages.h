// SPDX-License-Identifier: Apache-2.0
// What a process and process 0 say to each other while the job meets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/sdk/backend.h"
#include "sockets/frame.h"
#include "tcp/tcp_network.h"

namespace farandole::tcp::rendezvous {

/// One message each; the keys of the Link of a call.
inline constexpr sockets::Key kRequest = 1;     ///< of the caller: a Request
inline constexpr sockets::Key kNeighbours = 2;  ///< of process 0: all have met; where the neighbours listen
inline constexpr sockets::Key kRefusal = 3;     ///< of process 0: the job can not start; an encoded error
inline constexpr sockets::Key kMissing = 4;     ///< of process 0, now and then: which processes have not come; a text
inline constexpr sockets::Key kStart = 5;       ///< of process 0, before kNeighbours: see TcpNetwork::set_start
/// More than any of them has.
inline constexpr std::size_t kMaxMessageBytes = 8 * 1024;

/// What a process says of itself. Builds that differ must understand it: it never changes.
struct Request {
  BuildClaim build;
  ListenAddresses addresses;
  std::uint64_t id = 0;  ///< random: process 0 knows a call of its own by it
};
static_assert(sizeof(Request) == 384);

struct Neighbour {
  std::int32_t process = 0;
  ListenAddresses addresses;
};

/// "process 3 (host node7, pid 4711)"
std::string describe(int process, const BuildClaim& build);
/// "process 3 has not come", "processes 3, 7 have not come"; of many the first ones.
std::string describe_missing(std::span<const int> processes);

/// @throws TransportError  these bytes are no request
Request parse_request(std::span<const std::byte> bytes);
/// @throws TransportError  these bytes are no number of a start, or there are none
std::uint32_t parse_start(const std::optional<std::vector<std::byte>>& bytes);
/// @throws TransportError  these bytes are not where exactly these processes listen
std::vector<Neighbour> parse_neighbours(std::span<const std::byte> bytes, std::span<const int> expected);

}  // namespace farandole::tcp::rendezvous
