// SPDX-License-Identifier: Apache-2.0
// This rank's requests that are submitted and not agreed on yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "farandole/internal/deadline.h"
#include "request.h"

namespace farandole {

/// A request that the ranks have not agreed on yet.
struct PendingRequest {
  Ticket ticket = 0;
  SharedSpec spec;
  Waiting waiting = Waiting::kNobody;
  bool in_step = false;
  Clock::time_point since{};
  int slot = -1;           ///< -1: no slot; announced by name
  bool announced = false;  ///< announced by name, or ready in its slot
};

/// This rank's pending requests in a process set, and the bytes that announce them.
///
/// The states of a request. With a slot: *held* until the planner releases its bucket, then *ready*, which is announced
/// by its byte. Without a slot: *unannounced* until the next negotiation, then *announced* by name.
///
/// Invariants:
/// - `bytes()` is 1 exactly for slots whose request is ready. A slot has at most one request of this rank.
/// - `announced()` counts the requests that are ready or announced.
/// - A pending request does not move in memory.
class PendingRequests {
 public:
  using Time = Clock::time_point;

  /// Sets the number of slots.
  void resize(std::size_t slots);
  /// Adds a request whose name is not pending: held in its slot, or without a slot unannounced.
  void add(PendingRequest&& request);
  /// Marks held requests as ready; this rank begins a negotiation for them.
  void mark_ready(std::span<const int> slots);
  /// The slot is retired; a request in the slot is to be announced by name.
  void leave_slot(int slot);
  /// A request that was announced by name gets a slot, and is ready there.
  void enter_slot(const std::string& name, int slot);
  /// Makes this rank begin a negotiation if it has announced requests: they may have become ready everywhere.
  void request_negotiation() { unsent_ = unsent_ || announced_ > 0; }
  /// Cancels a requested negotiation if this rank has no announced requests any more: peers need not answer it.
  void cancel_if_nothing_announced() { unsent_ = unsent_ && announced_ > 0; }
  /// Begins a negotiation. @returns  the requests that this rank now announces by name
  std::vector<Announcement> announce();
  /// Ends a request. @returns  the request; with ticket 0 if there is none
  PendingRequest end(const std::string& name);
  PendingRequest end_in(int slot) { return has(slot) ? end(in_slot(slot)->spec->name) : PendingRequest(); }
  /// Ends all requests. @returns  the requests in order of tickets, each with `error`
  std::vector<FailedRequest> fail_all(const RequestError& error);

  /// Notes that somebody waits for the request of this name; keeps the stronger `Waiting`. No-op if the name is not
  /// pending.
  void wait_for(const std::string& name, Waiting waiting);
  bool empty() const { return requests_.empty(); }
  bool has(int slot) const { return in_slot_[static_cast<std::size_t>(slot)] != nullptr; }
  /// One byte per slot: 1 if this rank's request in the slot is ready.
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::size_t announced() const { return announced_; }
  bool is_waited_for() const;
  std::vector<const PendingRequest*> oldest_first() const;
  /// Submission time of the oldest request that waits for other ranks; nothing if all are refusals.
  std::optional<Time> oldest() const;
  /// Time at which this rank begins a negotiation for the pending requests; may be in the past, or Time::max().
  Time next_wakeup() const;

 private:
  friend class NegotiatorProbe;

  PendingRequest*& in_slot(int slot) { return in_slot_[static_cast<std::size_t>(slot)]; }

  std::unordered_map<std::string, PendingRequest> requests_;  // by name
  std::vector<PendingRequest*> in_slot_;
  std::vector<std::uint8_t> bytes_;
  std::vector<PendingRequest*> unannounced_;
  std::size_t announced_ = 0;
  bool unsent_ = false;  // begin a negotiation: announced requests may be ready everywhere
};

}  // namespace farandole
