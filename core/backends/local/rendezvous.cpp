// SPDX-License-Identifier: Apache-2.0
#include "local/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "farandole/sdk/backend.h"
#include "sockets/open_files.h"

namespace farandole::local {

Hello make_hello(int process, int processes) {
  Hello hello;
  hello.process = process;
  hello.processes = processes;
  hello.pid = getpid();
  write_text(hello.layout, layout_id());
  return hello;
}

Hello parse_hello(std::span<const std::byte> packet) {
  Hello hello;
  if (packet.size() != sizeof hello) {
    throw TransportError(
        fmt::format("{} bytes instead of {}; is it of another version of Farandole?", packet.size(), sizeof hello));
  }
  std::memcpy(&hello, packet.data(), sizeof hello);
  if (hello.process < 0 || hello.process >= hello.processes || hello.pid <= 0) {
    throw TransportError(fmt::format("process {} of {} with pid {}", hello.process, hello.processes, hello.pid));
  }
  if (!is_text(hello.layout)) throw TransportError("a layout that is no text");
  return hello;
}

namespace {

constexpr std::size_t kMaxNameBytes = 64;
// Linux does not notify when a name appears, so connects are retried after this time.
constexpr int kRetryMs = 5;

// A process that ends during the rendezvous usually has found a problem, such as a wrong FARANDOLE_SIZE. This process
// may be about to find the same problem, so it waits for this time before it reports the loss.
constexpr auto kLostProcessGrace = std::chrono::milliseconds(300);

[[noreturn]] void throw_failed(std::string_view function) {
  throw TransportError(
      fmt::format("joining the other processes: {} failed: {}", function, std::generic_category().message(errno)));
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

// A name that begins with a zero byte is abstract: it has no file.
Address address_of(const LocalJob& job, int process) {
  const std::string name = fmt::format("farandole/{}/{}/{}", geteuid(), job.name, process);
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

/// True if the peer has closed the connection, even if unread bytes remain.
bool is_closed(const UniqueDescriptor& socket) {
  pollfd entry{socket.get(), 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & POLLHUP) != 0;
}

/// True if the peer will send no more, even if unread bytes remain.
bool has_sent_all(const UniqueDescriptor& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP)) != 0;
}

bool is_of_this_user(const UniqueDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw_failed("getsockopt(SO_PEERCRED)");
  return peer.uid == geteuid();
}

/// The state of `join_job` in one process.
class JobConnector {
 public:
  explicit JobConnector(const LocalJob& job) : job_(job), connected_(static_cast<std::size_t>(job.processes), false) {
    rendezvous_.sockets.resize(connected_.size());
    builds_.resize(connected_.size());
    connected_[static_cast<std::size_t>(job.process)] = true;
    builds_[static_cast<std::size_t>(job.process)] = own_build_claim();
    listen();
  }

  Rendezvous run() && {
    StallMonitor stall(job_.warn_after, job_.timeout);
    for (; !is_complete(); rest()) {
      for (int process = 0; process < job_.process; ++process) connect_to(process);
      accept_connections();
      for (int process = 0; process < job_.process; ++process) receive_answer(process);
      if (is_complete()) break;
      check_for_lost_process();
      stall.check([&] {
        return fmt::format(
            "job '{}': process {} of {} waits for {}; each must be started on this host by the same user, with its own "
            "FARANDOLE_RANK and the same FARANDOLE_SIZE and FARANDOLE_JOB; over several hosts set FARANDOLE_RENDEZVOUS",
            job_.name, job_.process, job_.processes, missing());
      });
    }
    check_same_build(builds_);
    return std::move(rendezvous_);
  }

 private:
  UniqueDescriptor& socket_of(int process) { return rendezvous_.sockets[static_cast<std::size_t>(process)]; }
  bool is_connected(int process) const { return connected_[static_cast<std::size_t>(process)]; }
  bool is_complete() const { return std::find(connected_.begin(), connected_.end(), false) == connected_.end(); }

  void listen() {
    rendezvous_.listener = make_socket();
    const Address own = address_of(job_, job_.process);
    if (bind(rendezvous_.listener.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0) {
      if (errno != EADDRINUSE) throw_failed("bind");
      throw InvalidArgument(fmt::format(
          "job '{}' has a process {} already; give each process its own FARANDOLE_RANK, and each job its own "
          "FARANDOLE_JOB",
          job_.name, job_.process));
    }
    if (::listen(rendezvous_.listener.get(), job_.processes) != 0) throw_failed("listen");
  }

  /// Connects with a lower process, unless that is done or the process does not listen yet. Non-blocking.
  void connect_to(int process) {
    if (socket_of(process)) return;
    UniqueDescriptor socket = make_socket();
    const Address target = address_of(job_, process);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&target.address), target.length) != 0) {
      // The process does not listen yet, or its queue of connections is full for a moment.
      if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return;
      throw_failed("connect");
    }
    if (!is_of_this_user(socket)) {
      throw InvalidArgument(
          fmt::format("a process of another user poses as process {} of job '{}'; choose another FARANDOLE_JOB",
                      process, job_.name));
    }
    if (send_hello(socket)) socket_of(process) = std::move(socket);
  }

  /// Returns false if the peer is gone.
  bool send_hello(const UniqueDescriptor& socket) const {
    const Hello mine = make_hello(job_.process, job_.processes);
    return send(socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof mine);
  }

  /// Accepts connections of higher processes, and receives their hellos. Non-blocking.
  void accept_connections() {
    for (;;) {
      UniqueDescriptor socket(accept4(rendezvous_.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      if (!is_of_this_user(socket)) {
        warn_refused("a process of another user");
      } else if (send_hello(socket)) {
        unidentified_.push_back(std::move(socket));
      }
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) throw_failed("accept");
    for (UniqueDescriptor& socket : unidentified_) {
      bool is_gone = false;
      const auto hello = receive_hello(socket, is_gone);
      if (hello && is_expected(*hello)) {
        accept(*hello);
        socket_of(hello->process) = std::move(socket);
      }
      if (hello || is_gone) socket = UniqueDescriptor();
    }
    std::erase_if(unidentified_, [](const UniqueDescriptor& socket) { return !socket; });
  }

  /// Receives the hello of a lower process with which this process has connected.
  void receive_answer(int process) {
    if (is_connected(process) || !socket_of(process)) return;
    bool is_gone = false;
    if (const auto hello = receive_hello(socket_of(process), is_gone)) {
      if (hello->process != process) {
        throw TransportError(fmt::format("job '{}': process {} (pid {}) says that it is process {}", job_.name, process,
                                         hello->pid, hello->process));
      }
      accept(*hello);
    }
    // The process belonged to an earlier job of the same name, and has left.
    if (is_gone) socket_of(process) = UniqueDescriptor();
  }

  /// Receives a hello once all its bytes have arrived. Reads no byte beyond the hello, because messages may follow.
  /// Non-blocking.
  /// @param is_gone  set if the peer has closed the connection, or has sent something other than a hello
  std::optional<Hello> receive_hello(const UniqueDescriptor& socket, bool& is_gone) {
    std::array<std::byte, sizeof(Hello)> packet{};
    ssize_t got = 0;
    // The kernel reports a reset of the connection once, ahead of bytes that arrived before the reset. These bytes can
    // still be read.
    do {
      got = recv(socket.get(), packet.data(), packet.size(), MSG_PEEK);
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    is_gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    if (got <= 0) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes < packet.size() && !has_sent_all(socket)) return std::nullopt;
    try {
      (void)recv(socket.get(), packet.data(), bytes, 0);
      return parse_hello(std::span(packet).first(bytes));
    } catch (const TransportError& error) {
      warn_refused(error.message());
      is_gone = true;
      return std::nullopt;
    }
  }

  /// True if the sender of the hello must connect with this process, and has no open connection yet.
  bool is_expected(const Hello& hello) {
    check_size(hello);
    if (hello.process <= job_.process) {
      warn_refused(fmt::format("process {}, which does not call process {}", hello.process, job_.process));
      return false;
    }
    if (is_connected(hello.process) && !is_closed(socket_of(hello.process))) {
      warn_refused(fmt::format("process {}, which is there already", hello.process));
      return false;
    }
    return true;
  }

  /// Warns once only: a process that connects again and again could fill the log.
  void warn_refused(std::string_view reason) {
    if (std::exchange(has_warned_, true)) return;
    log(LogLevel::kWarning, fmt::format("job '{}', process {}: a connection that is none of the job's is refused: {}",
                                        job_.name, job_.process, reason));
  }

  /// @throws InvalidArgument  the processes were given different numbers of processes
  void check_size(const Hello& other) const {
    if (other.processes == job_.processes) return;
    throw InvalidArgument(
        fmt::format("job '{}': FARANDOLE_SIZE is {} in process {} (pid {}) and {} in process {} (pid {})", job_.name,
                    job_.processes, job_.process, getpid(), other.processes, other.process, other.pid));
  }

  /// Marks a process as connected, and notes its build.
  void accept(const Hello& other) {
    check_size(other);
    connected_[static_cast<std::size_t>(other.process)] = true;
    BuildClaim& build = builds_[static_cast<std::size_t>(other.process)];
    build = own_build_claim();  // the process is on this host, so all but its pid and layout is the same
    build.pid = other.pid;
    std::fill(std::begin(build.layout), std::end(build.layout), '\0');
    other.layout_text().copy(build.layout, sizeof build.layout - 1);
  }

  /// @throws PeerLost  a connected process has been gone for kLostProcessGrace; no process can take its place
  void check_for_lost_process() {
    int lost = -1;
    for (int process = 0; process < job_.processes && lost < 0; ++process) {
      if (!is_connected(process) || !socket_of(process)) continue;
      char byte = 0;
      if (recv(socket_of(process).get(), &byte, sizeof byte, MSG_PEEK) == 0) lost = process;
    }
    if (lost < 0) return;
    if (lost_deadline_.is_never()) lost_deadline_ = Deadline::after(kLostProcessGrace);
    if (!lost_deadline_.passed()) return;
    throw PeerLost(fmt::format(
        "job '{}': process {} has gone before process {} of {} had met every process ({} not there yet); its own "
        "output may say why",
        job_.name, lost, job_.process, job_.processes, missing()));
  }

  std::string missing() const {
    std::vector<int> numbers;
    for (int process = 0; process < job_.processes; ++process) {
      if (!is_connected(process)) numbers.push_back(process);
    }
    return fmt::format("{} {}", numbers.size() == 1 ? "process" : "processes", fmt::join(numbers, ", "));
  }

  void rest() const {
    pollfd listener{rendezvous_.listener.get(), POLLIN, 0};
    poll(&listener, 1, kRetryMs);
  }

  const LocalJob& job_;
  Rendezvous rendezvous_;
  std::vector<bool> connected_;                 // by process; true once the process's hello has been accepted
  std::vector<BuildClaim> builds_;              // by process, of the connected processes
  Deadline lost_deadline_ = Deadline::never();  // set once a connected process has gone
  std::vector<UniqueDescriptor> unidentified_;  // accepted connections whose hello has not come yet
  bool has_warned_ = false;
};

}  // namespace

Rendezvous join_job(const LocalJob& job) {
  if (job.name.empty() || job.name.size() > kMaxNameBytes) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_JOB has {} characters; it must have 1 to {}", job.name.size(), kMaxNameBytes));
  }
  sockets::provide_descriptors(job.processes, fmt::format("job '{}'", job.name));
  return JobConnector(job).run();
}

}  // namespace farandole::local
