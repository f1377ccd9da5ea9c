// SPDX-License-Identifier: Apache-2.0
// Ranks that all wait for each other, and never go on.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"
#include "request.h"

namespace farandole {

/// A rank is *blocked* when it will submit nothing before one of its requests is done: its only thread waits in a call,
/// or it stands still (TensorEngine). It says so in each negotiation, and begins one when it comes to stand still.
/// Where all ranks are blocked in one negotiation, and a moment later confirm in another what they wait for, none of
/// them will ever go on: all fail what they wait for.
///
/// Invariants:
/// - This rank confirms only if all ranks were blocked in the negotiation before, and it has submitted nothing since.
/// - Ranks are found to wait for each other only where each that has not joined confirms, and one does, in a
///   negotiation in which nothing else has happened. All ranks find the same, in the same words.
class DeadlockDetector {
 public:
  using Time = Clock::time_point;

  /// This rank has come to stand still: it begins a negotiation to say so.
  void announce_idle() { idle_unannounced_ = true; }
  bool has_unannounced() const { return idle_unannounced_; }
  /// This rank submits something, or gives up what it waits for.
  void reset();
  /// When this rank begins another negotiation because all ranks seem to wait for each other, or Time::max().
  Time next_wakeup() const { return suspected_ ? *suspected_ + kLasts : Time::max(); }

  /// A negotiation begins. @returns  true if this rank confirms what it waits for, should it be blocked
  bool open();
  /// @param names  of all that this rank waits for
  void confirm(std::vector<std::string> names) { confirmed_ = std::move(names); }
  const std::vector<std::string>& confirmed() const { return confirmed_; }
  /// @param happened  something is ready everywhere
  void receive(bool all_blocked, bool happened);
  /// A rank has joined, or a name is complete, in this negotiation.
  void note_progress() { happened_ = true; }
  /// @param joined  by rank   @param names  of the ranks   @returns  an error's text if all ranks wait for each other
  std::optional<std::string> receive_confirmations(const std::vector<Announcements>& all,
                                                   const std::vector<bool>& joined,
                                                   const std::vector<std::string>& names) const;
  /// True if all ranks were blocked when this negotiation began: maybe they still are.
  bool were_all_blocked() const { return all_blocked_; }
  /// The negotiation ends. @param suspected  all were blocked, and this rank still is
  void end_negotiation(bool suspected, Time now);

 private:
  friend class NegotiatorProbe;
  // Ranks that seem to wait for each other may be wrong about it for this long: a thread may be about to submit.
  static constexpr std::chrono::milliseconds kLasts{300};

  bool idle_unannounced_ = false;
  std::optional<Time> suspected_;  // since when all ranks seem to wait for each other
  // In this negotiation.
  std::vector<std::string> confirmed_;
  bool all_blocked_ = false, happened_ = false;
};

}  // namespace farandole
