#include "local/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "farandole/core/backend.h"
#include "farandole/core/deadline.h"
#include "farandole/core/error.h"
#include "patience.h"

namespace farandole::local {
namespace {

constexpr std::size_t kLongestJob = 64;
// Nothing tells that a name has come into being, so it is looked for again.
constexpr int kRetryMs = 5;

// A process that was met and goes before all have met has had its reasons, which the others may be about to find, too.
constexpr auto kGoneTime = std::chrono::milliseconds(300);

/// What the two ends of a connection tell each other first. Builds that differ must understand it: it never changes.
struct Hello {
  std::int32_t process = 0;
  std::int32_t processes = 0;
  std::int32_t pid = 0;
  char build[116] = {};
};
static_assert(sizeof(Hello) == 128);

[[noreturn]] void throw_failed(std::string_view what) {
  throw TransportError(
      fmt::format("joining the other processes: {} failed: {}", what, std::generic_category().message(errno)));
}

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

// A name that begins with a zero byte is an abstract one.
Address address_of(const Seat& seat, int process) {
  const std::string name = fmt::format("farandole/{}/{}/{}", geteuid(), seat.job, process);
  Address result;
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, sizeof result.address.sun_path - 1);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueDescriptor make_socket() {
  UniqueDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw_failed("socket");
  return socket;
}

bool is_of_this_user(const UniqueDescriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw_failed("getsockopt(SO_PEERCRED)");
  return peer.uid == geteuid();
}

/// The work of `meet`: everybody calls those with lower numbers, and answers those with higher ones.
class Gathering {
 public:
  explicit Gathering(const Seat& seat) : seat_(seat), greeted_(static_cast<std::size_t>(seat.processes), false) {
    meeting_.sockets.resize(greeted_.size());
    builds_.resize(greeted_.size());
    greeted_[static_cast<std::size_t>(seat.process)] = true;
    builds_[static_cast<std::size_t>(seat.process)] = own_build_claim();
    listen();
  }

  Meeting run() && {
    Patience patience(seat_.warn_after, seat_.timeout);
    for (; !is_complete(); rest()) {
      for (int process = 0; process < seat_.process; ++process) call(process);
      answer();
      for (int process = 0; process < seat_.process; ++process) hear_called(process);
      if (is_complete()) break;
      look_for_gone();
      patience.look([&] {
        return fmt::format(
            "job '{}': process {} of {} waits for {}; each must be started with its own FARANDOLE_RANK, and the same "
            "FARANDOLE_SIZE and FARANDOLE_JOB",
            seat_.job, seat_.process, seat_.processes, missing());
      });
    }
    check_same_build(builds_);
    return std::move(meeting_);
  }

 private:
  UniqueDescriptor& socket_of(int process) { return meeting_.sockets[static_cast<std::size_t>(process)]; }
  bool is_greeted(int process) const { return greeted_[static_cast<std::size_t>(process)]; }
  bool is_complete() const { return std::find(greeted_.begin(), greeted_.end(), false) == greeted_.end(); }

  void listen() {
    meeting_.name = make_socket();
    const Address own = address_of(seat_, seat_.process);
    if (bind(meeting_.name.get(), reinterpret_cast<const sockaddr*>(&own.address), own.length) != 0) {
      if (errno != EADDRINUSE) throw_failed("bind");
      throw InvalidArgument(fmt::format(
          "job '{}' has a process {} already; give each process its own FARANDOLE_RANK, and each job its own "
          "FARANDOLE_JOB",
          seat_.job, seat_.process));
    }
    if (::listen(meeting_.name.get(), seat_.processes) != 0) throw_failed("listen");
  }

  /// Connects with a lower process, if it is there and not connected yet. Never waits.
  void call(int process) {
    if (socket_of(process)) return;
    UniqueDescriptor socket = make_socket();
    const Address other = address_of(seat_, process);
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&other.address), other.length) != 0) {
      // Not there yet, or its queue is full for a moment.
      if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return;
      throw_failed("connect");
    }
    if (!is_of_this_user(socket)) {
      throw InvalidArgument(
          fmt::format("a process of another user poses as process {} of job '{}'; choose another FARANDOLE_JOB",
                      process, seat_.job));
    }
    if (greet(socket)) socket_of(process) = std::move(socket);
  }

  /// False if the other end is gone.
  bool greet(const UniqueDescriptor& socket) const {
    Hello mine;
    mine.process = seat_.process;
    mine.processes = seat_.processes;
    mine.pid = getpid();
    std::string_view(layout_id()).copy(mine.build, sizeof mine.build - 1);
    return send(socket.get(), &mine, sizeof mine, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof mine);
  }

  void answer() {
    for (;;) {
      UniqueDescriptor socket(accept4(meeting_.name.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      if (is_of_this_user(socket) && greet(socket)) callers_.push_back(std::move(socket));
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) throw_failed("accept");
    for (UniqueDescriptor& caller : callers_) {
      bool is_gone = false;
      const auto hello = hear(caller, is_gone);
      if (hello) {
        accept(*hello);
        socket_of(hello->process) = std::move(caller);
      }
      if (is_gone) caller = UniqueDescriptor();
    }
    std::erase_if(callers_, [](const UniqueDescriptor& caller) { return !caller; });
  }

  void hear_called(int process) {
    if (is_greeted(process) || !socket_of(process)) return;
    bool is_gone = false;
    if (const auto hello = hear(socket_of(process), is_gone)) {
      accept(*hello);
    }
    // It has left a job of the same name in between.
    if (is_gone) socket_of(process) = UniqueDescriptor();
  }

  static std::optional<Hello> hear(const UniqueDescriptor& socket, bool& is_gone) {
    Hello hello;
    ssize_t got = 0;
    // A reset is told once, and before what was sent until then.
    do {
      got = recv(socket.get(), &hello, sizeof hello, 0);
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    is_gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    if (got != static_cast<ssize_t>(sizeof hello)) return std::nullopt;
    return hello;
  }

  void accept(const Hello& other) {
    if (other.processes != seat_.processes) {
      throw InvalidArgument(
          fmt::format("job '{}': FARANDOLE_SIZE is {} in process {} (pid {}) and {} in process {} (pid {})", seat_.job,
                      seat_.processes, seat_.process, getpid(), other.processes, other.process, other.pid));
    }
    greeted_[static_cast<std::size_t>(other.process)] = true;
    BuildClaim& build = builds_[static_cast<std::size_t>(other.process)];
    build = own_build_claim();  // it is on this host
    build.pid = other.pid;
    std::fill(std::begin(build.layout), std::end(build.layout), '\0');
    std::string_view(other.build, strnlen(other.build, sizeof other.build)).copy(build.layout, sizeof build.layout - 1);
  }

  /// Nobody takes the place of a process that has been met.
  void look_for_gone() {
    int gone = -1;
    for (int process = 0; process < seat_.processes && gone < 0; ++process) {
      if (!is_greeted(process) || !socket_of(process)) continue;
      char byte = 0;
      if (recv(socket_of(process).get(), &byte, sizeof byte, MSG_PEEK) == 0) gone = process;
    }
    if (gone < 0) return;
    if (gone_.is_never()) gone_ = Deadline::after(kGoneTime);
    if (!gone_.passed()) return;
    throw PeerLost(fmt::format(
        "job '{}': process {} has gone before process {} of {} had met all others ({} not there yet); its own "
        "output may say why",
        seat_.job, gone, seat_.process, seat_.processes, missing()));
  }

  std::string missing() const {
    std::vector<int> numbers;
    for (int process = 0; process < seat_.processes; ++process) {
      if (!is_greeted(process)) numbers.push_back(process);
    }
    return fmt::format("{} {}", numbers.size() == 1 ? "process" : "processes", fmt::join(numbers, ", "));
  }

  void rest() const {
    pollfd caller{meeting_.name.get(), POLLIN, 0};
    poll(&caller, 1, kRetryMs);
  }

  const Seat& seat_;
  Meeting meeting_;
  std::vector<bool> greeted_;              // by process: its hello was heard and is right
  std::vector<BuildClaim> builds_;         // of those
  Deadline gone_ = Deadline::never();      // one of those has gone: the others have until then to come
  std::vector<UniqueDescriptor> callers_;  // who called and has not said who it is
};

}  // namespace

Meeting meet(const Seat& seat) {
  if (seat.job.empty() || seat.job.size() > kLongestJob) {
    throw InvalidArgument(
        fmt::format("FARANDOLE_JOB has {} characters; it must have 1 to {}", seat.job.size(), kLongestJob));
  }
  return Gathering(seat).run();
}

}  // namespace farandole::local
