// SPDX-License-Identifier: Apache-2.0
#include "tcp/stream.h"

#include <fmt/format.h>
#include <linux/pkt_sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "farandole/core/error.h"

namespace farandole::tcp {
namespace {

constexpr int kOn = 1;
constexpr int kOff = 0;
constexpr int kMaxKeepaliveSeconds = 32767;  // the kernel's maximum

void set(int socket, int level, int option, int value) {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

/// Configures keepalive: the kernel sends the first probe after silence for a third of the timeout, and ends the
/// connection when the timeout has passed without an answer.
void set_keepalive(int socket, Seconds peer_timeout) {
  const int total = std::max(2, static_cast<int>(std::min(peer_timeout.count(), 1e6)));
  const int idle = std::clamp(total / 3, 1, kMaxKeepaliveSeconds);
  const int interval = std::clamp(total / 9, 1, kMaxKeepaliveSeconds);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, kOn);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, std::clamp((total - idle) / interval, 1, 127));
}

/// Sets the options of a connection. Does not set TCP_USER_TIMEOUT, which would also end a connection whose peer merely
/// reads nothing for that time: a peer that computes is late, not lost.
void prepare(int socket, Seconds peer_timeout) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, kOn);
  set_keepalive(socket, peer_timeout);
}

UniqueDescriptor try_to_listen(const Address& at, int& error) {
  sockaddr_storage address{};
  const unsigned length = to_sockaddr(at, address);
  UniqueDescriptor socket(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket && at.family == 6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, kOff);
  // With SO_REUSEADDR, only a listening socket occupies a requested port, not connections that have ended.
  if (socket && at.port != 0) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, kOn);
  if (socket && bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      listen(socket.get(), SOMAXCONN) == 0) {
    return socket;
  }
  error = errno;
  return {};
}

}  // namespace

UniqueDescriptor listen_at(const std::optional<Address>& at, std::uint16_t port) {
  int error = 0;
  UniqueDescriptor socket;
  if (at) {
    socket = try_to_listen(Address{at->family, port, at->bytes}, error);
  } else {
    // An IPv6 socket accepts IPv4 connections, too; a kernel without IPv6 needs an IPv4 socket.
    socket = try_to_listen(Address{6, port, {}}, error);
    if (!socket && error != EADDRINUSE) socket = try_to_listen(Address{4, port, {}}, error);
  }
  if (!socket) {
    throw TransportError(
        fmt::format("this process cannot listen at {}{}: {}", at ? to_text(*at) : "any address",
                    port == 0 ? "" : fmt::format(", port {}", port),
                    port == 0 ? describe_socket_problem(error) : std::generic_category().message(error)));
  }
  return socket;
}

std::uint16_t port_of(const UniqueDescriptor& socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    throw TransportError(fmt::format("getsockname failed: {}", std::generic_category().message(errno)));
  }
  return from_sockaddr(reinterpret_cast<const sockaddr&>(own)).port;
}

UniqueDescriptor start_connect(const Address& to, const std::optional<Address>& from, Seconds peer_timeout) {
  sockaddr_storage address{};
  unsigned length = to_sockaddr(to, address);
  UniqueDescriptor socket(::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  prepare(socket.get(), peer_timeout);
  if (from && from->family == to.family) {
    sockaddr_storage own{};
    const unsigned own_length = to_sockaddr(*from, own);
    set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, kOn);
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), own_length) != 0) return {};
  }
  const int result = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length);
  if (result != 0 && errno != EINPROGRESS) return {};
  return socket;
}

std::string describe_socket_problem(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EADDRNOTAVAIL || error == EADDRINUSE) {
    text +=
        ": this host has no port left, or does not have this address; widen the range of ports (sysctl "
        "net.ipv4.ip_local_port_range), or see what holds them (ss -tan)";
  }
  return text;
}

UniqueDescriptor accept_connection(const UniqueDescriptor& listener, Seconds peer_timeout) {
  UniqueDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) prepare(socket.get(), peer_timeout);
  return socket;
}

void set_interactive(int socket) {
  set(socket, SOL_SOCKET, SO_PRIORITY, TC_PRIO_INTERACTIVE);
}

bool SilenceWatch::is_silent(int socket, Seconds peer_timeout, Clock::time_point now) {
  constexpr double kFractionOfTimeout = 0.9;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // Restart the series if the previous check was long ago: the two checks may have seen unrelated packet losses, each
  // repaired soon.
  if (info.tcpi_retransmits == 0 || now - last_check_ > peer_timeout / 10) retransmitting_since_.reset();
  last_check_ = now;
  if (info.tcpi_retransmits > 0 && !retransmitting_since_) retransmitting_since_ = now;
  // If only packets to the peer are lost, the peer's own retransmissions arrive, and reset the time since the last
  // acknowledgement; so the duration of the retransmissions counts.
  if (retransmitting_since_ && now - *retransmitting_since_ >= kFractionOfTimeout * peer_timeout) return true;
  const bool is_waiting_for_ack = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
  return is_waiting_for_ack && info.tcpi_last_ack_recv >= 1000.0 * kFractionOfTimeout * peer_timeout.count();
}

}  // namespace farandole::tcp
