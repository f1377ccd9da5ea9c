// SPDX-License-Identifier: Apache-2.0
// Detects deadlocks: ranks that all wait for each other.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"
#include "request.h"

namespace farandole {

/// Detects deadlocks within a process set. Sends no messages of its own: all data travels in negotiations.
///
/// A rank is *blocked* if none of its threads will submit anything before a pending request is done: either the only
/// thread that ever submitted waits in a call, or the rank is idle (IdleDetector). In the second byte of every
/// negotiation each rank reports whether it is blocked. A rank that becomes idle begins a negotiation.
///
/// 1. *Suspicion*: in a negotiation, all ranks report that they are blocked. A rank that still waits after this
///   negotiation suspects a deadlock.
/// 2. *Confirmation*: 0.3 s later each rank that still suspects a deadlock begins another negotiation, and announces
/// the
///   names for which it waits. If every rank that has not joined announces such names, and the negotiation makes no
///   other progress, no rank will ever go on: all ranks fail the requests of these names.
///
/// Invariants:
/// - This rank confirms only if all ranks were blocked in the preceding negotiation, and this rank has submitted
/// nothing
///   since.
/// - A deadlock is reported only if every rank that has not joined confirms, and at least one does, in a negotiation
///   without any other progress. All ranks report the same deadlock with the same text.
class DeadlockDetector {
 public:
  using Time = Clock::time_point;

  /// Call when this rank has become idle. Until the next negotiation begins, `has_unannounced` is true.
  void announce_idle() { idle_unannounced_ = true; }
  bool has_unannounced() const { return idle_unannounced_; }
  /// Clears the suspicion. Called when this rank submits a request, or drops the pending requests.
  void reset();
  /// Time at which this rank begins the confirming negotiation, or Time::max().
  Time next_wakeup() const { return suspected_ ? *suspected_ + kConfirmAfter : Time::max(); }

  /// Begins a negotiation. @returns  true if this rank suspects a deadlock; it then calls `confirm` if still blocked
  bool open();
  /// Confirms the suspicion in this negotiation. @param names  the requests for which this rank waits
  void confirm(std::vector<std::string> names) { confirmed_ = std::move(names); }
  const std::vector<std::string>& confirmed() const { return confirmed_; }
  /// Ends phase 1 of the negotiation. @param all_blocked  by the ranks' second bytes   @param progress  a request is
  /// ready everywhere
  void receive(bool all_blocked, bool progress);
  /// Notes other progress in this negotiation: a rank has joined, or a name is complete.
  void note_progress() { progress_ = true; }
  /// Evaluates all ranks' confirmations. @param joined  by rank   @param names  descriptions of the ranks
  /// @returns  the error's text if all ranks wait for each other
  std::optional<std::string> receive_confirmations(const std::vector<Announcements>& all,
                                                   const std::vector<bool>& joined,
                                                   const std::vector<std::string>& names) const;
  /// True if all ranks were blocked at the beginning of this negotiation.
  bool were_all_blocked() const { return all_blocked_; }
  /// Ends the negotiation. @param suspected  all ranks were blocked, and this rank still is
  void end_negotiation(bool suspected, Time now);

 private:
  friend class NegotiatorProbe;
  // Delay between suspicion and confirmation: a thread of a rank that seems blocked may be about to submit.
  static constexpr std::chrono::milliseconds kConfirmAfter{300};

  bool idle_unannounced_ = false;
  std::optional<Time> suspected_;  // time of the suspicion; nothing if there is none
  // State of this negotiation.
  std::vector<std::string> confirmed_;
  bool all_blocked_ = false, progress_ = false;
};

}  // namespace farandole
