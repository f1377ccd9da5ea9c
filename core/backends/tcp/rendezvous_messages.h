// SPDX-License-Identifier: Apache-2.0
// Messages of the rendezvous between a process and process 0.
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

/// Keys of the messages, each on the link between a process and process 0.
inline constexpr sockets::Key kRequest = 1;     ///< to process 0: a Request
inline constexpr sockets::Key kNeighbours = 2;  ///< from process 0, when all have connected: an array of Neighbour
inline constexpr sockets::Key kRefusal = 3;     ///< from process 0: the job cannot start; an encoded error
inline constexpr sockets::Key kMissing = 4;     ///< from process 0, repeatedly: which processes are missing; a text
inline constexpr sockets::Key kStart = 5;       ///< from process 0, before kNeighbours: the job's start number, see
                                                ///< TcpNetwork::set_start
/// Exceeds the length of every message.
inline constexpr std::size_t kMaxMessageBytes = 8 * 1024;

/// Request of a process to join. The layout never changes, since processes of different builds must understand it.
struct Request {
  BuildClaim build;
  ListenAddresses addresses;
  std::uint64_t id = 0;  ///< random; process 0 recognises a connection to itself by its own id
};
static_assert(sizeof(Request) == 384);

/// Where a neighbour in the binomial tree listens.
struct Neighbour {
  std::int32_t process = 0;
  ListenAddresses addresses;
};

/// Returns "process 3 (host node7, pid 4711)".
std::string describe(int process, const BuildClaim& build);
/// Returns "process 3 has not come" or "processes 3, 7 have not come"; names the first 16 processes at most.
std::string describe_missing(std::span<const int> processes);

/// Decodes a request. @throws TransportError  `bytes` are not a request
Request parse_request(std::span<const std::byte> bytes);
/// Decodes the job's start number (kStart). @throws TransportError  `bytes` are missing, or are not a number
std::uint32_t parse_start(const std::optional<std::vector<std::byte>>& bytes);
/// Decodes the addresses of the neighbours. @param expected  the neighbours in the tree   @throws TransportError
/// `bytes` are not the addresses of exactly these processes
std::vector<Neighbour> parse_neighbours(std::span<const std::byte> bytes, std::span<const int> expected);

}  // namespace farandole::tcp::rendezvous
