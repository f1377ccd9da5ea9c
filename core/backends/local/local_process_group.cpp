// SPDX-License-Identifier: Apache-2.0
#include "local/local_process_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"

namespace farandole::local {

using sockets::Key;
using sockets::Receiving;
using sockets::Sending;

namespace {

// Channels have fewer than 56 bits.
constexpr Key kControlMessage = Key{1} << 60;
constexpr Key kGathered = Key{2} << 60;

constexpr auto kFlushTime = std::chrono::seconds(1);

/// Otherwise its peers would not see this process end for as long as a child of it lives, and its number would be
/// taken.
void drop_sockets_in_child(LocalProcessGroup& group) {
  group.drop_sockets();
}
using GroupsInChildren = ForkedChildren<LocalProcessGroup, drop_sockets_in_child>;

class LocalBackend final : public Backend {
 public:
  std::string_view name() const override { return "local"; }
  std::string version() const override { return "sockets of this host"; }
  std::unique_ptr<ProcessGroup> join(const Settings& settings, const JoinOptions&) override {
    auto group = std::make_unique<LocalProcessGroup>(Slot{settings.job, static_cast<int>(settings.rank),
                                                          static_cast<int>(settings.size), settings.warn_after,
                                                          settings.timeout});
    // Programs that this process starts inherit the variables, but are not part of the job.
    setenv("_FARANDOLE_JOINED_BY", std::to_string(getpid()).c_str(), /*replace=*/1);
    setenv("_FARANDOLE_JOINED_AS", slot_text(settings).c_str(), /*replace=*/1);
    return group;
  }
};

}  // namespace

LocalProcessGroup::LocalProcessGroup(const Slot& slot)
    : process_(slot.process), warn_after_(slot.warn_after), timeout_(slot.timeout) {
  Rendezvous rendezvous = meet(slot);
  name_ = std::move(rendezvous.name);
  for (UniqueDescriptor& socket : rendezvous.sockets) {
    links_.push_back(socket ? std::make_unique<Link>(std::move(socket), fmt::format("process {}", links_.size()))
                            : nullptr);
  }
  GroupsInChildren::add(this);
}

// What was posted last, a fault maybe, should still leave; a process that does not read has a moment.
LocalProcessGroup::~LocalProcessGroup() {
  GroupsInChildren::remove(this);
  const Deadline deadline = Deadline::after(kFlushTime);
  try {
    while (!is_flushed() && !deadline.passed()) rest();
  } catch (const Error& error) {
    log(LogLevel::kError, fmt::format("closing the connections of the job: {}", error.what()));
  }
}

void LocalProcessGroup::drop_sockets() {
  const UniqueDescriptor dropped(std::move(name_));
  for (const auto& link : links_) {
    if (link) link->drop_socket();
  }
}

template <class Look>
void LocalProcessGroup::wait_for(int process, std::string_view doing, const Look& is_done) {
  while (!is_done()) {
    if (links_[static_cast<std::size_t>(process)]->is_closed()) {
      // What it sent before it went is still there.
      if (is_done()) return;
      throw PeerLost(fmt::format("process {} of {} has gone while {}", process, process_count(), doing));
    }
    look_while_waiting();
    rest();
  }
}

void LocalProcessGroup::allgather(const void* mine, void* all, std::size_t bytes) {
  constexpr std::string_view kDoing = "all told each other what they must know";
  auto* parts = static_cast<std::byte*>(all);
  std::memmove(parts + static_cast<std::size_t>(process_) * bytes, mine, bytes);
  std::vector<std::pair<int, Sending>> outgoing;
  std::vector<std::pair<int, Receiving>> incoming;
  for (int p = 0; p < process_count(); ++p) {
    if (p == process_) continue;
    Link& link = *links_[static_cast<std::size_t>(p)];
    outgoing.emplace_back(p, link.send(kGathered, mine, bytes));
    incoming.emplace_back(p, link.recv(kGathered, parts + static_cast<std::size_t>(p) * bytes, bytes));
  }
  StallMonitor stall(warn_after_, timeout_);
  for (auto& [p, message] : incoming) {
    wait_for(p, kDoing, [&, p = p, &message = message] {
      stall.check([&] {
        return fmt::format(
            "joining the job: process {} of {} has been waiting for {:.1f} s for process {}, which has met "
            "the others and says no more: it is stopped, or very slow",
            process_, process_count(), stall.waited().count(), p);
      });
      return message.test();
    });
    if (message.bytes() != bytes) {
      throw TransportError(
          fmt::format("process {} gathers {} bytes where this one gathers {}", p, message.bytes(), bytes));
    }
  }
  for (auto& [p, message] : outgoing) wait_for(p, kDoing, [&message = message] { return message.test(); });
}

void LocalProcessGroup::post(int process, const ControlMessage& control) {
  Link* link = links_[static_cast<std::size_t>(process)].get();
  if (link != nullptr) {
    link->post(kControlMessage, &control, sizeof control);
    return;
  }
  const std::lock_guard lock(mutex_);
  to_self_.push_back(control);
}

std::optional<ControlMessage> LocalProcessGroup::poll_any() {
  for (int p = 0; p < process_count(); ++p) {
    Link* const link = links_[static_cast<std::size_t>(p)].get();
    if (const auto bytes = link != nullptr ? link->take(kControlMessage) : std::nullopt)
      return parse_control_message(*bytes, p);
  }
  if (to_self_.empty()) return std::nullopt;
  const ControlMessage control = to_self_.front();
  to_self_.pop_front();
  return control;
}

std::optional<ControlMessage> LocalProcessGroup::poll() {
  const std::lock_guard lock(mutex_);
  return poll_any();
}

bool LocalProcessGroup::is_gone(int process) {
  Link* const link = links_[static_cast<std::size_t>(process)].get();
  // What it said last may have come since `poll` looked.
  return link != nullptr && link->is_closed() && !link->has_arrived(kControlMessage, ~Key{0});
}

bool LocalProcessGroup::is_flushed() {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return !link || link->is_flushed(); });
}

void LocalProcessGroup::rest() {
  std::vector<pollfd> sockets;
  for (const auto& link : links_) {
    if (link) sockets.push_back({link->descriptor(), POLLIN, 0});
  }
  ::poll(sockets.data(), sockets.size(), 1);
}

std::string slot_text(const Settings& settings) {
  return fmt::format("{} of {} in {}", settings.rank, settings.size, settings.job);
}

Backend& local_backend() {
  static LocalBackend backend;
  return backend;
}

}  // namespace farandole::local
