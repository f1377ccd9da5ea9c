// SPDX-License-Identifier: Apache-2.0
#include "local/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "farandole/sdk/backend.h"
#include "local/hello.h"
#include "sockets/open_files.h"

namespace farandole::local {
namespace {

constexpr std::size_t kLongestJob = 64;
// Nothing tells that a name has come into being, so it is looked for again.
constexpr int kRetryMs = 5;

// A process that was met and goes before all have met has had its reasons, which its peers may be about to find, too.
constexpr auto kGoneTime = std::chrono::milliseconds(300);

[[noreturn]] void throw_failed(std::string_view what) {
  throw TransportError(
      fmt::format("joining the other processes: {} failed: {}", what, std::generic_category().message(errno)));
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

// A name that begins with a zero byte is an abstract one.
Address address_of(const Slot& slot, int process) {
  const std::string name = fmt::format("farandole/{}/{}/{}", geteuid(), slot.job, process);
  Address result;
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, sizeof result.address.sun_path - 1);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueDescriptor make_socket() {
  UniqueDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw_failed("socket");
  return socket;
}

/// True if the other end has closed the connection, whatever of it is still to be read.
bool has_hung_up(const UniqueDescriptor& socket) {
  pollfd entry{socket.get(), 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & POLLHUP) != 0;
}

/// True if the other end sends no more, whatever of it is still to be read.
bool has_ended(const UniqueDescriptor& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP)) != 0;
}

bool is_of_this_user(const UniqueDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw_failed("getsockopt(SO_PEERCRED)");
  return peer.uid == geteuid();
}

/// The work of `meet`: each process calls those with lower numbers, and answers those with higher ones.
class Gathering {
 public:
  explicit Gathering(const Slot& slot) : slot_(slot), greeted_(static_cast<std::size_t>(slot.processes), false) {
    rendezvous_.sockets.resize(greeted_.size());
    builds_.resize(greeted_.size());
    greeted_[static_cast<std::size_t>(slot.process)] = true;
    builds_[static_cast<std::size_t>(slot.process)] = own_build_claim();
    listen();
  }

  Rendezvous run() && {
    StallMonitor stall(slot_.warn_after, slot_.timeout);
    for (; !is_complete(); rest()) {
      for (int process = 0; process < slot_.process; ++process) call(process);
      answer();
      for (int process = 0; process < slot_.process; ++process) hear_called(process);
      if (is_complete()) break;
      look_for_gone();
      stall.check([&] {
        return fmt::format(
            "job '{}': process {} of {} waits for {}; each must be started on this host by the same user, with its own "
            "FARANDOLE_RANK and the same FARANDOLE_SIZE and FARANDOLE_JOB; over several hosts set FARANDOLE_RENDEZVOUS",
            slot_.job, slot_.process, slot_.processes, missing());
      });
    }
    check_same_build(builds_);
    return std::move(rendezvous_);
  }

 private:
  UniqueDescriptor& socket_of(int process) { return rendezvous_.sockets[static_cast<std::size_t>(process)]; }
  bool is_greeted(int process) const { return greeted_[static_cast<std::size_t>(process)]; }
  bool is_complete() const { return std::find(greeted_.begin(), greeted_.end(), false) == greeted_.end(); }

  void listen() {
    rendezvous_.name = make_socket();
    const Address own = address_of(slot_, slot_.process);
    if (bind(rendezvous_.name.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0) {
      if (errno != EADDRINUSE) throw_failed("bind");
      throw InvalidArgument(fmt::format(
          "job '{}' has a process {} already; give each process its own FARANDOLE_RANK, and each job its own "
          "FARANDOLE_JOB",
          slot_.job, slot_.process));
    }
    if (::listen(rendezvous_.name.get(), slot_.processes) != 0) throw_failed("listen");
  }

  /// Connects with a lower process, if it is there and not connected yet. Never waits.
  void call(int process) {
    if (socket_of(process)) return;
    UniqueDescriptor socket = make_socket();
    const Address other = address_of(slot_, process);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&other.address), other.length) != 0) {
      // Not there yet, or its queue is full for a moment.
      if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return;
      throw_failed("connect");
    }
    if (!is_of_this_user(socket)) {
      throw InvalidArgument(
          fmt::format("a process of another user poses as process {} of job '{}'; choose another FARANDOLE_JOB",
                      process, slot_.job));
    }
    if (greet(socket)) socket_of(process) = std::move(socket);
  }

  /// False if the other end is gone.
  bool greet(const UniqueDescriptor& socket) const {
    const Hello mine = make_hello(slot_.process, slot_.processes);
    return send(socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof mine);
  }

  void answer() {
    for (;;) {
      UniqueDescriptor socket(accept4(rendezvous_.name.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      if (!is_of_this_user(socket)) {
        warn_of_stranger("a process of another user");
      } else if (greet(socket)) {
        callers_.push_back(std::move(socket));
      }
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) throw_failed("accept");
    for (UniqueDescriptor& caller : callers_) {
      bool is_gone = false;
      const auto hello = receive_hello(caller, is_gone);
      if (hello && is_awaited(*hello)) {
        accept(*hello);
        socket_of(hello->process) = std::move(caller);
      }
      if (hello || is_gone) caller = UniqueDescriptor();
    }
    std::erase_if(callers_, [](const UniqueDescriptor& caller) { return !caller; });
  }

  void hear_called(int process) {
    if (is_greeted(process) || !socket_of(process)) return;
    bool is_gone = false;
    if (const auto hello = receive_hello(socket_of(process), is_gone)) {
      if (hello->process != process) {
        throw TransportError(fmt::format("job '{}': process {} (pid {}) says that it is process {}", slot_.job, process,
                                         hello->pid, hello->process));
      }
      accept(*hello);
    }
    // It has left a job of the same name in between.
    if (is_gone) socket_of(process) = UniqueDescriptor();
  }

  /// Takes the hello only, and only whole: messages may follow it.
  /// @param is_gone  set if no process listens, or the one that does sends no hello
  std::optional<Hello> receive_hello(const UniqueDescriptor& socket, bool& is_gone) {
    std::array<std::byte, sizeof(Hello)> packet{};
    ssize_t got = 0;
    // A reset is reported once, and before what was sent until then.
    do {
      got = recv(socket.get(), packet.data(), packet.size(), MSG_PEEK);
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    is_gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    if (got <= 0) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes < packet.size() && !has_ended(socket)) return std::nullopt;
    try {
      (void)recv(socket.get(), packet.data(), bytes, 0);
      return parse_hello(std::span(packet).first(bytes));
    } catch (const TransportError& error) {
      warn_of_stranger(error.what());
      is_gone = true;
      return std::nullopt;
    }
  }

  /// Whether the process that says this has this one's connection to make.
  bool is_awaited(const Hello& hello) {
    check_size(hello);
    if (hello.process <= slot_.process) {
      warn_of_stranger(fmt::format("process {}, which does not call process {}", hello.process, slot_.process));
      return false;
    }
    if (is_greeted(hello.process) && !has_hung_up(socket_of(hello.process))) {
      warn_of_stranger(fmt::format("process {}, which is there already", hello.process));
      return false;
    }
    return true;
  }

  /// Once: a process that does nothing else could fill the log.
  void warn_of_stranger(std::string_view what) {
    if (std::exchange(has_warned_, true)) return;
    log(LogLevel::kWarning, fmt::format("job '{}', process {}: a connection that is none of the job's is refused: {}",
                                        slot_.job, slot_.process, what));
  }

  /// @throws InvalidArgument  it was given another number of processes
  void check_size(const Hello& other) const {
    if (other.processes == slot_.processes) return;
    throw InvalidArgument(
        fmt::format("job '{}': FARANDOLE_SIZE is {} in process {} (pid {}) and {} in process {} (pid {})", slot_.job,
                    slot_.processes, slot_.process, getpid(), other.processes, other.process, other.pid));
  }

  void accept(const Hello& other) {
    check_size(other);
    greeted_[static_cast<std::size_t>(other.process)] = true;
    BuildClaim& build = builds_[static_cast<std::size_t>(other.process)];
    build = own_build_claim();  // it is on this host
    build.pid = other.pid;
    std::fill(std::begin(build.layout), std::end(build.layout), '\0');
    other.layout_text().copy(build.layout, sizeof build.layout - 1);
  }

  /// No process takes the place of a process that has been met.
  void look_for_gone() {
    int gone = -1;
    for (int process = 0; process < slot_.processes && gone < 0; ++process) {
      if (!is_greeted(process) || !socket_of(process)) continue;
      char byte = 0;
      if (recv(socket_of(process).get(), &byte, sizeof byte, MSG_PEEK) == 0) gone = process;
    }
    if (gone < 0) return;
    if (gone_.is_never()) gone_ = Deadline::after(kGoneTime);
    if (!gone_.passed()) return;
    throw PeerLost(fmt::format(
        "job '{}': process {} has gone before process {} of {} had met every process ({} not there yet); its own "
        "output may say why",
        slot_.job, gone, slot_.process, slot_.processes, missing()));
  }

  std::string missing() const {
    std::vector<int> numbers;
    for (int process = 0; process < slot_.processes; ++process) {
      if (!is_greeted(process)) numbers.push_back(process);
    }
    return fmt::format("{} {}", numbers.size() == 1 ? "process" : "processes", fmt::join(numbers, ", "));
  }

  void rest() const {
    pollfd caller{rendezvous_.name.get(), POLLIN, 0};
    poll(&caller, 1, kRetryMs);
  }

  const Slot& slot_;
  Rendezvous rendezvous_;
  std::vector<bool> greeted_;              // by process: its hello was received and is right
  std::vector<BuildClaim> builds_;         // of those
  Deadline gone_ = Deadline::never();      // one of those has gone: the rest have until then to come
  std::vector<UniqueDescriptor> callers_;  // processes that have connected and not sent their hello
  bool has_warned_ = false;
};

}  // namespace

Rendezvous meet(const Slot& slot) {
  if (slot.job.empty() || slot.job.size() > kLongestJob) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_JOB has {} characters; it must have 1 to {}", slot.job.size(), kLongestJob));
  }
  sockets::provide_descriptors(slot.processes, fmt::format("job '{}'", slot.job));
  return Gathering(slot).run();
}

}  // namespace farandole::local
