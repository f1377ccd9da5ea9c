// SPDX-License-Identifier: Apache-2.0
// This rank's requests that are submitted, and on which the ranks have not agreed yet.
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

/// A request on which the ranks have not agreed yet.
struct PendingRequest {
  Ticket ticket = 0;
  SharedSpec spec;
  Waiting waiting = Waiting::kNobody;
  bool in_step = false;
  Clock::time_point since{};
  int slot = -1;           ///< -1: no slot; to be announced by name
  bool announced = false;  ///< announced by name, or ready in its slot
};

/// This rank's pending requests in a process set, and the bytes that announce them.
///
/// States of a request. With a slot, a request is *held* until the planner releases its bucket, then *ready*: the
/// slot's byte announces the request. Without a slot, a request is *unannounced* until the next negotiation, then
/// *announced* by name.
///
/// Invariants:
/// - `bytes()` has a 1 exactly for slots whose request is ready. A slot has at most one request of this rank.
/// - `announced()` counts the requests that are ready or announced.
/// - The address of a pending request does not change: other members hold pointers to it.
class PendingRequests {
 public:
  using Time = Clock::time_point;

  /// Sets the number of slots.
  void resize(std::size_t slots);
  /// Adds a request whose name is not pending. The request is held in its slot; without a slot it is unannounced.
  void add(PendingRequest&& request);
  /// Marks held requests as ready; this rank begins a negotiation for them.
  void mark_ready(std::span<const int> slots);
  /// Call when the slot is retired. A request in the slot becomes unannounced.
  void leave_slot(int slot);
  /// Moves a request that was announced by name into a slot, where it is ready.
  void enter_slot(const std::string& name, int slot);
  /// Makes this rank begin a negotiation if it has announced requests, because they may have become ready everywhere.
  void request_negotiation() { unsent_ = unsent_ || announced_ > 0; }
  /// Cancels a requested negotiation if this rank has no announced requests left: peers need not answer it.
  void cancel_if_nothing_announced() { unsent_ = unsent_ && announced_ > 0; }
  /// Begins a negotiation. @returns  the requests that this rank now announces by name
  std::vector<Announcement> announce();
  /// Removes and returns a request. If there is none, the result has ticket 0.
  PendingRequest end(const std::string& name);
  PendingRequest end_in(int slot) { return has(slot) ? end(in_slot(slot)->spec->name) : PendingRequest(); }
  /// Removes all requests. @returns  the requests in order of tickets, each with `error`
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
  /// Submission time of the oldest request that is not a refusal; nothing if there is none.
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
