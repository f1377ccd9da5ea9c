// SPDX-License-Identifier: Apache-2.0
// MessageHub: faults, ranks that have left the job, and the end of communicators and of the World.
#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"
#include "point_to_point/message_hub.h"

namespace farandole {
namespace {

// Time without a header of an awaited peer after which this rank asks whether the peer has left the job, and interval
// between later questions.
constexpr auto kAskAfter = std::chrono::milliseconds(500);
constexpr auto kAskInterval = std::chrono::seconds(1);
// Time after which a rank that leaves the job reads headers of all ranks, which may make connections to them.
constexpr Seconds kReadAllAfter{1.0};

}  // namespace

void MessageHub::fail(std::uint64_t number, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (pending_.contains(number)) fail_job(failure.kind, failure.text);
}

void MessageHub::fail_job(ErrorKind kind, const std::string& text) {
  EndpointFaults& faults = endpoint_.faults();
  faults.poison(kind, text);
  try {
    faults.check();
  } catch (const Error& fault) {
    fail_all({fault.kind(), fault.message()});
  }
}

void MessageHub::fail_all(const Failure& failure) {
  copies_.clear();
  for (auto& [key, mailbox] : mailboxes_) mailbox.drop_receives();
  for (auto& [rank, other] : peers_) {
    other.withdraw_sends([&](Message& message, BufferHazard hazard) {
      Failure own = failure;
      if (hazard == BufferHazard::kWritten) own.text += kStillWritten;
      end(message, std::move(own));
    });
  }
  while (!pending_.empty()) {
    const std::shared_ptr<Message> message = pending_.begin()->second;
    end(*message, failure);
  }
}

void MessageHub::poll_health() {
  try {
    endpoint_.faults().poll();
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && !pending_.empty()) check_peers(Clock::now());
  } catch (const std::exception& error) {
    // The transport failed. Poison the job, so that waiting threads raise its fault.
    endpoint_.faults().poison(ErrorKind::kTransportError, message_of(error));
  }
}

void MessageHub::check_peers(Clock::time_point now) {
  std::vector<int> silent;
  bool may_have_left = false;
  for (const auto& [rank, other] : peers_) {
    const bool is_awaited = other.awaited > 0 || other.has_payloads();
    if (!is_awaited || rank == endpoint_.rank() || now - other.active < kAskAfter) continue;
    silent.push_back(rank);
    may_have_left = may_have_left || endpoint_.late_ranks().has_left(rank);
  }
  if (!silent.empty() && now >= next_question_) {
    next_question_ = now + kAskInterval;
    endpoint_.late_ranks().ask(kMessageChannels, 1, silent, {});
  }
  if (!may_have_left) return;
  for (const auto& [number, message] : pending_) {
    if (!waits_only_for_left_ranks(*message)) continue;
    const std::string waits = describe_wait(message->spec, message->group, message->label);
    return fail_job(ErrorKind::kPeerLost,
                    fmt::format("{}; {}", waits,
                                message->peer() ? "the rank has left the job" : "all other ranks have left the job"));
  }
}

/// True if each rank that the message waits for has left the job, and its last messages have had time to arrive.
bool MessageHub::waits_only_for_left_ranks(const Message& message) const {
  const auto has_left = [&](int rank) {
    const auto found = peers_.find(rank);
    return found != peers_.end() && Clock::now() - found->second.active > LateRanks::kGoodbye &&
           endpoint_.late_ranks().has_left(rank);
  };
  if (const std::optional<int> rank = message.peer()) return has_left(*rank);
  const std::vector<int>& members = message.group.members;
  return members.size() > 1 && std::all_of(members.begin(), members.end(),
                                           [&](int member) { return member == endpoint_.rank() || has_left(member); });
}

std::shared_ptr<Message> MessageHub::last_pending(const WorkOwner& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pending_.rbegin(), pending_.rend(),
                                  [&](const auto& entry) { return entry.second->owner.get() == &owner; });
  return found == pending_.rend() ? nullptr : found->second;
}

std::string MessageHub::describe_others(const Message& receive) {
  const std::lock_guard lock(mutex_);
  const auto found = mailboxes_.find(key_of(receive.group.key()));
  return found == mailboxes_.end() ? std::string() : found->second.describe_others(receive);
}

void MessageHub::forget(const CommunicatorKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = mailboxes_.find(key_of(key));
  if (found == mailboxes_.end()) return;
  for (const ArrivedMessage& arrival : found->second.arrivals()) {
    if (arrival.header.kind != MessageHeader::Kind::kLong || endpoint_.faults().exist()) continue;
    (void)run_or_fail([&] {
      answer(peer(arrival.source), MessageHeader::Kind::kClosed, arrival.header);
      return true;
    });
  }
  mailboxes_.erase(found);
  if (!is_busy_) note_busy();
}

void MessageHub::close() {
  for (;;) {
    std::shared_ptr<Message> last;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) break;
      last = pending_.rbegin()->second;
    }
    last->owner->wait(*last);
  }
  Waiter waiter(endpoint_.progress().doorbell(), endpoint_.progress().waiting());
  StallMonitor stall(endpoint_.settings().faults.warn_after, endpoint_.settings().faults.timeout);
  while (flush_once(/*reads_all=*/stall.waited() > kReadAllAfter)) {
    if (!waiter.rest()) continue;
    poll_health();
    const StallMonitor::Due due = stall.take_due(Clock::now());
    if (due == StallMonitor::Due::kError) break;
    if (due == StallMonitor::Due::kWarning) {
      log(LogLevel::kWarning, fmt::format("leaving the job: {} waits until other ranks accept its last messages",
                                          endpoint_.topology().describe(endpoint_.rank())));
    }
  }
  drop_all();
}

/// Moves the last messages on, and reads headers meanwhile, because peers may wait in the same way. Returns false once
/// no message is left that a peer may still accept, or after a fault.
/// @param reads_all  also read headers of ranks with which this rank has had no messages
bool MessageHub::flush_once(bool reads_all) {
  const std::lock_guard lock(mutex_);
  const bool has_unsent = run_or_fail([&] {
    endpoint_.faults().check();
    std::vector<int> targets;
    for (auto& [rank, other] : peers_) {
      (void)other.free_sent();
      if (other.has_unsent() && endpoint_.late_ranks().has_left(rank)) other.drop_unsent();
      if (other.has_unsent()) targets.push_back(rank);
    }
    if (targets.empty()) return false;
    if (Clock::now() >= next_question_) {
      next_question_ = Clock::now() + kAskInterval;
      endpoint_.late_ranks().ask(kMessageChannels, 1, targets, {});
    }
    for (int rank = 0; reads_all && rank < endpoint_.topology().size(); ++rank) (void)peer(rank);
    for (auto& [rank, other] : peers_) {
      while (const auto received = other.receive()) handle(other, *received);
    }
    return true;
  });
  return has_unsent && !endpoint_.faults().exist();
}

void MessageHub::drop_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, other] : peers_) other.close();
  peers_.clear();
  mailboxes_.clear();
  note_busy();
}

}  // namespace farandole
