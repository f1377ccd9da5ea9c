// SPDX-License-Identifier: Apache-2.0
// TCP sockets as the job's connections need them.
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

/// Listens, without blocking. @param at  null: at all addresses of this host, IPv4 and IPv6   @param port  0: one that
/// is free   @throws TransportError  names the address
UniqueDescriptor listen_at(const std::optional<Address>& at, std::uint16_t port = 0);
/// The port that a socket has.
std::uint16_t port_of(const UniqueDescriptor& socket);
/// Begins to connect; errno says why there is none. @param from  the own address to use
UniqueDescriptor begin_to_connect(const Address& to, const std::optional<Address>& from, Seconds peer_timeout);
/// Why there is no socket, for people: the system's text, and what to do where this host has no port left.
std::string describe_socket_problem(int error);
/// The next caller, if there is one.
UniqueDescriptor accept_caller(const UniqueDescriptor& listener, Seconds peer_timeout);
/// Lets a queue of this host that knows priorities, as pfifo_fast, send what comes from this socket before what comes
/// from other sockets.
void set_interactive(int socket);
/// Watches a connection for the silence of its other end. A peer that does not read is not silent: its kernel answers.
/// Where nothing is to be sent the socket's keepalive finds the same, and closes it.
class SilenceWatch {
 public:
  /// True if the kernel has something to send over the connection, asks for an answer, and has had none for nearly
  /// `peer_timeout`. To be asked every now and then while something is waited for.
  bool is_silent(int socket, Seconds peer_timeout, Clock::time_point now = Clock::now());

 private:
  /// The first of the last looks in all of which the kernel was sending something again.
  std::optional<Clock::time_point> retransmitting_since_;
  Clock::time_point last_check_{};
};

}  // namespace farandole::tcp
