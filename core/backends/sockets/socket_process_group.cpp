// SPDX-License-Identifier: Apache-2.0
#include "sockets/socket_process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"
#include "sockets/announcement_interval.h"
#include "sockets/frame.h"

namespace farandole::sockets {
namespace {

// Keys of LinkTransport's channels are below 2^56, so these keys differ from all channels.
constexpr Key kControlMessage = Key{1} << 60;
constexpr Key kGathered = Key{2} << 60;
constexpr Key kGatheringFault = Key{3} << 60;    // an encoded error
constexpr Key kWaitAnnouncement = Key{4} << 60;  // a WaitAnnouncement: the processes that the sender waits for

constexpr auto kFlushTime = std::chrono::seconds(1);

struct WaitAnnouncement {
  static constexpr std::size_t kMax = 16;
  std::uint64_t gathering = 0;
  std::uint32_t count = 0;
  std::int32_t processes[kMax] = {};
};

}  // namespace

/// An allgather in progress.
struct SocketProcessGroup::Gathering {
  struct PendingReceive {
    int from;
    std::size_t bytes;
    Receiving message;
  };
  std::uint64_t number = 0;
  StallMonitor stall;
  Clock::duration interval{};
  Clock::time_point next_announcement = Clock::now() + interval;
  std::list<PendingReceive> incoming{};
  std::list<std::pair<int, Sending>> outgoing{};
  std::map<int, std::vector<int>> announced{};  // by neighbour: the processes that the neighbour waits for

  bool is_waiting_for(int process) const {
    return std::any_of(incoming.begin(), incoming.end(),
                       [&](const PendingReceive& each) { return each.from == process; });
  }
  /// Processes that delay this allgather, as far as this process knows.
  std::vector<int> late_processes() const {
    std::vector<int> processes;
    for (const PendingReceive& each : incoming) {
      const auto named = announced.find(each.from);
      const auto& those = named != announced.end() ? named->second : std::vector<int>{each.from};
      processes.insert(processes.end(), those.begin(), those.end());
    }
    for (const auto& [to, message] : outgoing) {
      if (processes.empty()) processes.push_back(to);
    }
    return processes;
  }
};

SocketProcessGroup::SocketProcessGroup(int process, int processes, Seconds warn_after, Seconds timeout,
                                       std::string timeout_origin)
    : process_(process),
      processes_(processes),
      warn_after_(warn_after),
      timeout_(timeout),
      timeout_origin_(std::move(timeout_origin)),
      tree_(process, processes),
      neighbours_(tree_.neighbours()) {}

void SocketProcessGroup::flush_at_end() {
  const Deadline deadline = Deadline::after(kFlushTime);
  try {
    while (!is_flushed() && !deadline.passed()) rest();
  } catch (const Error& error) {
    log(LogLevel::kError, fmt::format("closing the connections of the job: {}", error.message()));
  }
}

void SocketProcessGroup::allgather(const void* mine, void* all, std::size_t bytes) {
  auto* const parts = static_cast<std::byte*>(all);
  const auto part = [&](int process) { return parts + static_cast<std::size_t>(process) * bytes; };
  const auto block_bytes = [&](int from, int end) { return static_cast<std::size_t>(end - from) * bytes; };
  std::memmove(part(process_), mine, bytes);
  Gathering gathering{++allgather_count_, StallMonitor(warn_after_, timeout_, Clock::now(), timeout_origin_.c_str()),
                      announcement_interval(warn_after_, timeout_)};
  try {
    for (const int child : tree_.children()) {
      post_receive(gathering, child, part(child), block_bytes(child, BinomialTree(child, processes_).end()));
    }
    finish(gathering);
    if (!tree_.is_root()) {
      send_to(gathering, tree_.parent(), part(process_), block_bytes(process_, tree_.end()));
      post_receive(gathering, tree_.parent(), parts, block_bytes(0, processes_));
      finish(gathering);
    }
    for (const int child : tree_.children()) send_to(gathering, child, parts, block_bytes(0, processes_));
    finish(gathering);
  } catch (const Error& error) {
    send_error_to_neighbours(error);
    throw;
  }
}

void SocketProcessGroup::post_receive(Gathering& gathering, int from, std::byte* data, std::size_t bytes) {
  gathering.incoming.push_back({from, bytes, link_with(from).recv(kGathered, data, bytes)});
}

void SocketProcessGroup::send_to(Gathering& gathering, int to, const std::byte* data, std::size_t bytes) {
  gathering.outgoing.emplace_back(to, link_with(to).send(kGathered, data, bytes));
}

/// Waits until all posted receives and sends are complete.
void SocketProcessGroup::finish(Gathering& gathering) {
  const auto advance_transfers = [&gathering] {
    std::erase_if(gathering.incoming, [](Gathering::PendingReceive& each) {
      if (!each.message.test()) return false;
      if (each.message.bytes() == each.bytes) return true;
      throw TransportError(fmt::format("process {} gathers {} bytes where this one gathers {}", each.from,
                                       each.message.bytes(), each.bytes));
    });
    std::erase_if(gathering.outgoing, [](auto& each) { return each.second.test(); });
    return gathering.incoming.empty() && gathering.outgoing.empty();
  };
  for (; !advance_transfers(); rest()) {
    std::vector<int> lost;
    for (const int neighbour : neighbours_) {
      if (find_link(neighbour) != nullptr && !loss_reason(neighbour).empty()) lost.push_back(neighbour);
    }
    // Messages that a process sent before it ended may have arrived since.
    if (!lost.empty() && advance_transfers()) return;
    check_while_waiting(gathering);
    if (!lost.empty()) {
      throw PeerLost(
          fmt::format("process {} of {} has gone while the processes told each other what each must know: {}",
                      lost.front(), processes_, loss_reason(lost.front())));
    }
  }
}

/// Reads the neighbours' messages, announces late processes, and checks for a stall.
/// @throws Error  an error of another process, or of the job's callback for waiting threads   @throws Timeout
void SocketProcessGroup::check_while_waiting(Gathering& gathering) {
  for (const int neighbour : neighbours_) read_messages_of(gathering, neighbour);
  announce_late(gathering);
  run_wait_callback();
  gathering.stall.check([&] {
    const std::vector<int> late_processes = gathering.late_processes();
    const bool is_one = late_processes.size() == 1;
    return fmt::format(
        "joining the job: process {} of {} has been waiting for {:.1f} s for {} {}, which {} met the other "
        "processes and {} no more: {} stopped, or very slow",
        process_, processes_, gathering.stall.waited().count(), is_one ? "process" : "processes",
        fmt::join(late_processes, ", "), is_one ? "has" : "have", is_one ? "says" : "say",
        is_one ? "it is" : "they are");
  });
}

/// Reads a neighbour's error and wait announcements.
void SocketProcessGroup::read_messages_of(Gathering& gathering, int neighbour) {
  Link* const link = find_link(neighbour);
  if (link == nullptr) return;
  if (const auto fault = link->take(kGatheringFault)) throw_encoded_error(*fault, fmt::format("process {}", neighbour));
  while (const auto bytes = link->take(kWaitAnnouncement)) {
    WaitAnnouncement announcement;
    if (bytes->size() != sizeof announcement) continue;
    std::memcpy(&announcement, bytes->data(), sizeof announcement);
    const std::size_t count = std::min<std::size_t>(announcement.count, WaitAnnouncement::kMax);
    if (announcement.gathering != gathering.number || count == 0) continue;
    gathering.announced[neighbour].assign(announcement.processes, announcement.processes + count);
  }
}

/// Announces the late processes to the neighbours that wait for this process, so that their messages name the late
/// processes instead of this process.
void SocketProcessGroup::announce_late(Gathering& gathering) {
  const auto now = Clock::now();
  if (now < gathering.next_announcement) return;
  gathering.next_announcement = now + gathering.interval;
  const std::vector<int> late_processes = gathering.late_processes();
  WaitAnnouncement announcement;
  announcement.gathering = gathering.number;
  announcement.count = static_cast<std::uint32_t>(std::min(late_processes.size(), WaitAnnouncement::kMax));
  std::copy_n(late_processes.begin(), announcement.count, announcement.processes);
  for (const int neighbour : neighbours_) {
    if (Link* const link = find_link(neighbour); link != nullptr && !gathering.is_waiting_for(neighbour)) {
      link->post(kWaitAnnouncement, &announcement, sizeof announcement);
    }
  }
}

/// Sends the error to all neighbours. Each neighbour forwards the error, so that all processes throw the same error.
void SocketProcessGroup::send_error_to_neighbours(const Error& error) {
  const std::string message = encode_error(error);
  for (const int neighbour : neighbours_) {
    try {
      link_with(neighbour).post(kGatheringFault, message.data(), message.size());
    } catch (const Error& problem) {
      log(LogLevel::kDebug, fmt::format("process {} was not told of a fault: {}", neighbour, problem.message()));
    }
  }
}

void SocketProcessGroup::post(int process, const ControlMessage& control) {
  if (process != process_) {
    // The caller posts this fault to all processes itself; a fault that arrives later is not forwarded.
    if (control.kind == ControlMessage::Kind::kFault) has_forwarded_fault_.store(true, std::memory_order_relaxed);
    link_with(process).post(kControlMessage, &control, sizeof control);
    return;
  }
  const std::lock_guard lock(mutex_);
  own_messages_.push_back(control);
}

std::optional<ControlMessage> SocketProcessGroup::poll_locked() {
  advance();
  for (int p = 0; p < processes_; ++p) {
    Link* const link = find_link(p);
    const auto bytes = link != nullptr ? link->take(kControlMessage) : std::nullopt;
    if (!bytes) continue;
    const ControlMessage control = parse_control_message(*bytes, p);
    if (control.kind == ControlMessage::Kind::kFault) forward_fault(control);
    return control;
  }
  if (own_messages_.empty()) return std::nullopt;
  const ControlMessage control = own_messages_.front();
  own_messages_.pop_front();
  return control;
}

void SocketProcessGroup::forward_fault(ControlMessage fault) {
  if (has_forwarded_fault_.exchange(true, std::memory_order_relaxed)) return;
  const int sender = std::exchange(fault.process, process_);
  for (int p = 0; p < processes_; ++p) {
    if (p == process_ || p == sender || !is_watched_by(p)) continue;
    try {
      post(p, fault);
    } catch (const Error& error) {
      log(LogLevel::kDebug, fmt::format("process {} was not told of a fault: {}", p, error.message()));
    }
  }
}

std::optional<ControlMessage> SocketProcessGroup::poll() {
  const std::lock_guard lock(mutex_);
  return poll_locked();
}

bool SocketProcessGroup::is_gone(int process) {
  Link* const link = find_link(process);
  // A last control message may have arrived since the last `poll`.
  return link != nullptr && !loss_reason(process).empty() && !link->has_arrived(kControlMessage, ~Key{0});
}

bool SocketProcessGroup::is_flushed() {
  for (int p = 0; p < processes_; ++p) {
    Link* const link = find_link(p);
    if (link != nullptr && !link->is_flushed() && loss_reason(p).empty()) return false;
  }
  return true;
}

}  // namespace farandole::sockets
