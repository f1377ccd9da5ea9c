// SPDX-License-Identifier: Apache-2.0
#include "sockets/socket_process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <string_view>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"
#include "sockets/error_message.h"

namespace farandole::sockets {
namespace {

// Channels have fewer than 56 bits.
constexpr Key kControlMessage = Key{1} << 60;
constexpr Key kGathered = Key{2} << 60;
constexpr Key kGatheringFault = Key{3} << 60;  // an encoded error
constexpr Key kWaits = Key{4} << 60;           // the processes that the sender waits for: a Waits

constexpr auto kFlushTime = std::chrono::seconds(1);
// How often a process announces the processes that it waits for: in time for its neighbours' warnings and errors.
constexpr Seconds kBetweenWords{1};
constexpr double kPartOfWait = 0.2;

struct Waits {
  static constexpr std::size_t kMax = 16;
  std::uint64_t gathering = 0;
  std::uint32_t count = 0;
  std::int32_t processes[kMax] = {};
};

Clock::duration between_words(Seconds warn_after, Seconds timeout) {
  Seconds pause = std::min(kBetweenWords, kPartOfWait * warn_after);
  if (timeout.count() > 0) pause = std::min(pause, kPartOfWait * timeout);
  return std::chrono::duration_cast<Clock::duration>(pause);
}

}  // namespace

/// An allgather that is under way.
struct SocketProcessGroup::Gathering {
  struct Awaited {
    int from;
    std::size_t bytes;
    Receiving message;
  };
  std::uint64_t number = 0;
  StallMonitor stall;
  Clock::duration pause{};
  Clock::time_point next_word = Clock::now() + pause;
  std::list<Awaited> incoming{};
  std::list<std::pair<int, Sending>> outgoing{};
  std::map<int, std::vector<int>> waits{};  // by neighbour: the processes it waits for

  bool awaits(int process) const {
    return std::any_of(incoming.begin(), incoming.end(), [&](const Awaited& each) { return each.from == process; });
  }
  /// The processes that hold it up, as far as is known here.
  std::vector<int> late() const {
    std::vector<int> processes;
    for (const Awaited& each : incoming) {
      const auto named = waits.find(each.from);
      const auto& those = named != waits.end() ? named->second : std::vector<int>{each.from};
      processes.insert(processes.end(), those.begin(), those.end());
    }
    for (const auto& [to, message] : outgoing) {
      if (processes.empty()) processes.push_back(to);
    }
    return processes;
  }
};

SocketProcessGroup::SocketProcessGroup(int process, int processes, Seconds warn_after, Seconds timeout)
    : process_(process),
      processes_(processes),
      warn_after_(warn_after),
      timeout_(timeout),
      tree_(process, processes),
      neighbours_(tree_.neighbours()) {}

void SocketProcessGroup::flush_at_end() {
  const Deadline deadline = Deadline::after(kFlushTime);
  try {
    while (!is_flushed() && !deadline.passed()) rest();
  } catch (const Error& error) {
    log(LogLevel::kError, fmt::format("closing the connections of the job: {}", error.what()));
  }
}

void SocketProcessGroup::allgather(const void* mine, void* all, std::size_t bytes) {
  auto* const parts = static_cast<std::byte*>(all);
  const auto part = [&](int process) { return parts + static_cast<std::size_t>(process) * bytes; };
  const auto span = [&](int from, int end) { return static_cast<std::size_t>(end - from) * bytes; };
  std::memmove(part(process_), mine, bytes);
  Gathering gathering{++gatherings_, StallMonitor(warn_after_, timeout_), between_words(warn_after_, timeout_)};
  try {
    for (const int child : tree_.children()) {
      expect(gathering, child, part(child), span(child, BinomialTree(child, processes_).end()));
    }
    finish(gathering);
    if (!tree_.is_root()) {
      send_to(gathering, tree_.parent(), part(process_), span(process_, tree_.end()));
      expect(gathering, tree_.parent(), parts, span(0, processes_));
      finish(gathering);
    }
    for (const int child : tree_.children()) send_to(gathering, child, parts, span(0, processes_));
    finish(gathering);
  } catch (const Error& error) {
    tell_neighbours(error);
    throw;
  }
}

void SocketProcessGroup::expect(Gathering& gathering, int from, std::byte* data, std::size_t bytes) {
  gathering.incoming.push_back({from, bytes, link_with(from).recv(kGathered, data, bytes)});
}

void SocketProcessGroup::send_to(Gathering& gathering, int to, const std::byte* data, std::size_t bytes) {
  gathering.outgoing.emplace_back(to, link_with(to).send(kGathered, data, bytes));
}

/// Waits until all that is expected has come, and the sockets have all that was sent.
void SocketProcessGroup::finish(Gathering& gathering) {
  const auto move_on = [&gathering] {
    std::erase_if(gathering.incoming, [](Gathering::Awaited& each) {
      if (!each.message.test()) return false;
      if (each.message.bytes() == each.bytes) return true;
      throw TransportError(fmt::format("process {} gathers {} bytes where this one gathers {}", each.from,
                                       each.message.bytes(), each.bytes));
    });
    std::erase_if(gathering.outgoing, [](auto& each) { return each.second.test(); });
    return gathering.incoming.empty() && gathering.outgoing.empty();
  };
  for (; !move_on(); rest()) {
    std::vector<int> gone;
    for (const int neighbour : neighbours_) {
      if (find_link(neighbour) != nullptr && !why_lost(neighbour).empty()) gone.push_back(neighbour);
    }
    // What a process sent before it went is still there.
    if (!gone.empty() && move_on()) return;
    look(gathering);
    if (!gone.empty()) {
      throw PeerLost(
          fmt::format("process {} of {} has gone while the processes told each other what each must know: {}",
                      gone.front(), processes_, why_lost(gone.front())));
    }
  }
}

/// @throws Error  that another process has told, or of `while_waiting`   @throws Timeout
void SocketProcessGroup::look(Gathering& gathering) {
  for (const int neighbour : neighbours_) look_at(gathering, neighbour);
  announce_late(gathering);
  run_wait_callback();
  gathering.stall.check([&] {
    const std::vector<int> late = gathering.late();
    const bool is_one = late.size() == 1;
    return fmt::format(
        "joining the job: process {} of {} has been waiting for {:.1f} s for {} {}, which {} met the other "
        "processes and {} no more: {} stopped, or very slow",
        process_, processes_, gathering.stall.waited().count(), is_one ? "process" : "processes", fmt::join(late, ", "),
        is_one ? "has" : "have", is_one ? "says" : "say", is_one ? "it is" : "they are");
  });
}

/// What a neighbour says about the gathering, beside its part in it.
void SocketProcessGroup::look_at(Gathering& gathering, int neighbour) {
  Link* const link = find_link(neighbour);
  if (link == nullptr) return;
  if (const auto fault = link->take(kGatheringFault)) {
    throw_encoded_error(*fault, fmt::format("process {}", neighbour));
  }
  while (const auto bytes = link->take(kWaits)) {
    Waits waits;
    if (bytes->size() != sizeof waits) continue;
    std::memcpy(&waits, bytes->data(), sizeof waits);
    const std::size_t count = std::min<std::size_t>(waits.count, Waits::kMax);
    if (waits.gathering != gathering.number || count == 0) continue;
    gathering.waits[neighbour].assign(waits.processes, waits.processes + count);
  }
}

/// So that a process that waits for this one knows which process is late.
void SocketProcessGroup::announce_late(Gathering& gathering) {
  const auto now = Clock::now();
  if (now < gathering.next_word) return;
  gathering.next_word = now + gathering.pause;
  const std::vector<int> late = gathering.late();
  Waits waits;
  waits.gathering = gathering.number;
  waits.count = static_cast<std::uint32_t>(std::min(late.size(), Waits::kMax));
  std::copy_n(late.begin(), waits.count, waits.processes);
  for (const int neighbour : neighbours_) {
    if (Link* const link = find_link(neighbour); link != nullptr && !gathering.awaits(neighbour)) {
      link->post(kWaits, &waits, sizeof waits);
    }
  }
}

/// Each passes it on, so that all processes raise the same error.
void SocketProcessGroup::tell_neighbours(const Error& error) {
  const std::string message = encode_error(error);
  for (const int neighbour : neighbours_) {
    try {
      link_with(neighbour).post(kGatheringFault, message.data(), message.size());
    } catch (const Error& problem) {
      log(LogLevel::kDebug, fmt::format("process {} was not told of a fault: {}", neighbour, problem.what()));
    }
  }
}

void SocketProcessGroup::post(int process, const ControlMessage& control) {
  if (process != process_) {
    // It tells all.
    if (control.kind == ControlMessage::Kind::kFault) has_passed_on_.store(true, std::memory_order_relaxed);
    link_with(process).post(kControlMessage, &control, sizeof control);
    return;
  }
  const std::lock_guard lock(mutex_);
  to_self_.push_back(control);
}

std::optional<ControlMessage> SocketProcessGroup::poll_any() {
  advance();
  for (int p = 0; p < processes_; ++p) {
    Link* const link = find_link(p);
    const auto bytes = link != nullptr ? link->take(kControlMessage) : std::nullopt;
    if (!bytes) continue;
    const ControlMessage control = parse_control_message(*bytes, p);
    if (control.kind == ControlMessage::Kind::kFault) pass_on(control);
    return control;
  }
  if (to_self_.empty()) return std::nullopt;
  const ControlMessage control = to_self_.front();
  to_self_.pop_front();
  return control;
}

void SocketProcessGroup::pass_on(ControlMessage fault) {
  if (has_passed_on_.exchange(true, std::memory_order_relaxed)) return;
  const int sender = std::exchange(fault.process, process_);
  for (int p = 0; p < processes_; ++p) {
    if (p == process_ || p == sender || !is_watched_by(p)) continue;
    try {
      post(p, fault);
    } catch (const Error& error) {
      log(LogLevel::kDebug, fmt::format("process {} was not told of a fault: {}", p, error.what()));
    }
  }
}

std::optional<ControlMessage> SocketProcessGroup::poll() {
  const std::lock_guard lock(mutex_);
  return poll_any();
}

bool SocketProcessGroup::is_gone(int process) {
  Link* const link = find_link(process);
  // What it said last may have come since `poll` looked.
  return link != nullptr && !why_lost(process).empty() && !link->has_arrived(kControlMessage, ~Key{0});
}

bool SocketProcessGroup::is_flushed() {
  for (int p = 0; p < processes_; ++p) {
    Link* const link = find_link(p);
    if (link != nullptr && !link->is_flushed() && why_lost(p).empty()) return false;
  }
  return true;
}

}  // namespace farandole::sockets
