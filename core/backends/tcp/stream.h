// SPDX-License-Identifier: Apache-2.0
// TCP sockets with the options that the job's connections need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "sockets/descriptor.h"
#include "tcp/address.h"

namespace farandole::tcp {

using sockets::UniqueDescriptor;

/// Returns a non-blocking listening socket.
/// @param at  empty: all addresses of this host, IPv4 and IPv6   @param port  0: any free port
/// @throws TransportError  names the address
UniqueDescriptor listen_at(const std::optional<Address>& at, std::uint16_t port = 0);
/// Returns the port that a socket is bound to. @throws TransportError  getsockname failed
std::uint16_t port_of(const UniqueDescriptor& socket);
/// Starts a non-blocking connect. Returns an empty descriptor, with errno set, on failure.
/// @param from  local address to connect from   @param peer_timeout  for the socket's keepalive
UniqueDescriptor start_connect(const Address& to, const std::optional<Address>& from, Seconds peer_timeout);
/// Returns the system's text for an error of `start_connect`, with advice if this host has no free port.
std::string describe_socket_problem(int error);
/// Accepts the next connection; returns an empty descriptor, with errno set, if there is none.
UniqueDescriptor accept_connection(const UniqueDescriptor& listener, Seconds peer_timeout);
/// Gives packets of the socket priority over packets of other sockets, if this host's queueing discipline knows
/// priorities (pfifo_fast does).
void set_interactive(int socket);
/// Detects that the peer's host has gone silent while this host has data to send. (While there is nothing to send, the
/// socket's keepalive detects silence and closes the socket.) A peer that does not read is not silent: its kernel
/// acknowledges.
class SilenceWatch {
 public:
  /// True if the kernel has data to send or a probe to be answered, and has had no answer for nearly `peer_timeout`.
  /// Call regularly while waiting for the peer.
  bool is_silent(int socket, Seconds peer_timeout, Clock::time_point now = Clock::now());

 private:
  /// Time of the first check in the current unbroken series of checks that found retransmissions.
  std::optional<Clock::time_point> retransmitting_since_;
  Clock::time_point last_check_{};
};

}  // namespace farandole::tcp
