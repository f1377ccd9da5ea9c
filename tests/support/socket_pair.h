// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection, in one process.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "sockets/descriptor.h"

namespace farandole::test {

using SocketPair = std::array<sockets::UniqueDescriptor, 2>;

inline int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

inline SocketPair unix_socket_pair() {
  int ends[2];
  checked(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), "socketpair");
  return {sockets::UniqueDescriptor(ends[0]), sockets::UniqueDescriptor(ends[1])};
}

inline SocketPair tcp_socket_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  const sockets::UniqueDescriptor listener(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  checked(bind(listener.get(), any, length), "bind");
  checked(listen(listener.get(), 1), "listen");
  checked(getsockname(listener.get(), any, &length), "getsockname");
  sockets::UniqueDescriptor first(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  checked(connect(first.get(), any, length), "connect");
  checked(fcntl(first.get(), F_SETFL, O_NONBLOCK), "fcntl");
  return {std::move(first), sockets::UniqueDescriptor(checked(
                                accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC), "accept4"))};
}

}  // namespace farandole::test
