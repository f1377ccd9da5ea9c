// SPDX-License-Identifier: Apache-2.0
// Which ranks of a process set go without data, and which have left it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "request.h"

namespace farandole {

/// A rank that has *joined* has everything ready: what changes no result, where it has no request of its own. Once all
/// ranks have joined, one more negotiation does what some rank still has pending (it is *closing*); then they start
/// afresh. A rank that *departs* ends the set: nothing can be agreed on any more, and all wait until all have left.
///
/// Invariants:
/// - Which ranks have joined or left, which joined last, and whether the set is closing, is the same on all ranks
///   between negotiations: it changes by what all ranks have received.
/// - A rank announces a join once until all have joined, and a departure once for good.
/// - While the set is closing, all ranks have joined. It is closing for one negotiation.
/// - Once a rank has departed, none has joined.
class Joining {
 public:
  /// @param self  this rank   @param size  ranks of the set
  Joining(std::size_t self, std::size_t size) : self_(self), joined_(size, false), left_(size, false) {}

  /// @returns  why this rank can do nothing more, if a rank has departed; `what` it wants to do
  std::optional<RequestError> refuse(const std::string& what) const;
  /// This rank wants to join. Again before all have joined: nothing new.
  void join() { join_unannounced_ = join_unannounced_ || !is_joined(); }
  void leave(Departure departure);
  bool has_unannounced() const { return join_unannounced_ || departure_unannounced_ != Departure::kNone; }
  /// True if this rank has a part in negotiations though it may have nothing pending.
  bool takes_part() const { return is_joined() || left_[self_] || has_unannounced(); }
  /// Adds to what this rank announces in the negotiation that begins.
  void announce(Announcements& announcements);

  /// @returns  true if a rank departs in this negotiation   @param names  of the ranks, for messages
  bool receive_departures(const std::vector<Announcements>& all, const std::vector<std::string>& names);
  /// @returns  true if a rank joins in this negotiation
  bool receive_joins(const std::vector<Announcements>& all);
  /// The negotiation in which the set was closing ends. @returns  the rank that joined last
  int end_closing();

  const std::vector<bool>& joined() const { return joined_; }
  bool is_joined() const { return joined_[self_]; }
  bool has_any_joined() const;
  bool is_closing() const { return closing_; }
  const std::optional<RequestError>& departed() const { return departed_; }
  bool have_all_left() const;

 private:
  friend class NegotiatorProbe;  // tests compare all ranks

  void start_afresh();

  const std::size_t self_;
  std::vector<bool> joined_, left_;  // by rank
  int last_joined_ = -1;
  bool closing_ = false;
  std::optional<RequestError> departed_;  // the first departure
  // This rank's.
  bool join_unannounced_ = false;
  Departure departure_unannounced_ = Departure::kNone;
};

}  // namespace farandole
