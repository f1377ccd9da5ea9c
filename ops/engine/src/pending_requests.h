// SPDX-License-Identifier: Apache-2.0
// What this rank has submitted and has not seen the end of.
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

struct PendingRequest {
  Ticket ticket = 0;
  SharedSpec spec;
  Waiting waiting = Waiting::kNobody;
  bool in_step = false;
  Clock::time_point since{};
  int slot = -1;           ///< -1: it is announced by name
  bool announced = false;  ///< by name, or as ready in its slot
};

/// Invariants:
/// - Each request is in one of four states: in a slot, held (not announced) or ready (announced); without a slot, to be
///   announced by name in the next negotiation, or announced so.
/// - `bytes()` has 1 just for slots with a request that is ready. A slot has one request of this rank at most.
/// - `announced()` counts the requests that are announced.
/// - Requests stay where they are in memory until they end.
class PendingRequests {
 public:
  using Time = Clock::time_point;

  /// There are this many slots now.
  void resize(std::size_t slots);
  /// A request whose name is not pending: held in its slot, or, without one, to be announced by name.
  void add(PendingRequest&& request);
  /// Held requests are ready. Their rank begins a negotiation.
  void mark_ready(std::span<const int> slots);
  /// The slot is given up: the request in it, if there is one, is to be announced by name.
  void leave_slot(int slot);
  /// A request that was announced by name has a slot now, and is ready in it.
  void enter_slot(const std::string& name, int slot);
  /// What has been announced may be ready now: this rank begins a negotiation, if it has announced anything.
  void ask_again() { unsent_ = unsent_ || announced_ > 0; }
  /// Nothing of this rank is announced: it begins no negotiation, which its peers need not answer.
  void ask_nothing() { unsent_ = unsent_ && announced_ > 0; }
  /// A negotiation begins. @returns  what this rank announces by name in it
  std::vector<Announcement> announce();
  /// The end of a request. @returns  it; its ticket is 0 if there is none
  PendingRequest end(const std::string& name);
  PendingRequest end_in(int slot) { return has(slot) ? end(in_slot(slot)->spec->name) : PendingRequest(); }
  /// The end of all. @returns  them in order of tickets, with this error
  std::vector<FailedRequest> fail_all(const RequestError& error);

  void wait_for(const std::string& name, Waiting waiting);
  bool empty() const { return requests_.empty(); }
  bool has(int slot) const { return in_slot_[static_cast<std::size_t>(slot)] != nullptr; }
  /// One per slot: 1 if this rank is ready there.
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  std::size_t announced() const { return announced_; }
  bool is_waited_for() const;
  std::vector<const PendingRequest*> oldest_first() const;
  /// Since when the oldest is pending that waits for other ranks; nothing if all are refusals.
  std::optional<Time> oldest() const;
  /// When this rank wants to begin a negotiation for these, maybe in the past, or Time::max().
  Time next_wakeup() const;

 private:
  friend class NegotiatorProbe;

  PendingRequest*& in_slot(int slot) { return in_slot_[static_cast<std::size_t>(slot)]; }

  std::unordered_map<std::string, PendingRequest> requests_;  // by name
  std::vector<PendingRequest*> in_slot_;
  std::vector<std::uint8_t> bytes_;
  std::vector<PendingRequest*> unannounced_;
  std::size_t announced_ = 0;
  bool unsent_ = false;  // what is announced may be ready everywhere, and no negotiation has asked for it yet
};

}  // namespace farandole
