// SPDX-License-Identifier: Apache-2.0
#include "sockets/presence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <string>

namespace farandole::sockets {
namespace {

// Length of the queue of the presence socket. Connections are never accepted, so any large number will do.
constexpr int kBacklog = 4096;

struct PresenceName {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit PresenceName(std::span<const unsigned char> nonce) {
    // A leading zero byte makes the name abstract.
    const std::string name = fmt::format("farandole-presence/{:02x}", fmt::join(nonce, ""));
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

UniqueDescriptor make_presence_socket() {
  return UniqueDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

UniqueDescriptor announce_presence(std::span<const unsigned char> nonce) {
  UniqueDescriptor socket = make_presence_socket();
  const PresenceName name(nonce);
  if (!socket || bind(socket.get(), name.get(), name.length) != 0 || listen(socket.get(), kBacklog) != 0) return {};
  return socket;
}

std::optional<pid_t> find_present(std::span<const unsigned char> nonce) {
  const UniqueDescriptor socket = make_presence_socket();
  const PresenceName name(nonce);
  if (!socket) return std::nullopt;
  // EAGAIN: the queue is full, because many processes have connected; the announcing process exists.
  if (connect(socket.get(), name.get(), name.length) != 0) {
    return errno == EAGAIN ? std::optional<pid_t>(0) : std::nullopt;
  }
  ucred peer{};
  socklen_t length = sizeof peer;
  // Credentials of the listening process; the kernel translates the process id into this name space.
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return 0;
  return peer.pid;
}

}  // namespace farandole::sockets
