// SPDX-License-Identifier: Apache-2.0
// State of the ranks of a process set that have joined (take part without data) or left.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "request.h"

namespace farandole {

/// State of joins and departures in a process set.
///
/// Join: a rank that has *joined* reports every slot as ready, and contributes neutral values to the other ranks'
/// allreduces. Once all ranks have joined, the set is *closing*: one more negotiation completes the requests
/// that are still pending on some rank; afterwards no rank counts as joined.
///
/// Departure: the first rank that *departs* ends the set. From then on the ranks agree on no requests, and the pending
/// requests of all ranks fail. The set exists until all ranks have left.
///
/// Invariants:
/// - Between negotiations, all ranks know the same ranks as joined or left, the same rank as the last that joined, and
///   whether the set is closing: these members change only by data that all ranks have received.
/// - A rank announces a join at most once until all ranks have joined, and a departure at most once.
/// - While the set is closing all ranks have joined. Closing lasts for one negotiation.
/// - After a departure no rank counts as joined.
class Joining {
 public:
  /// @param self  this rank's index in the set   @param size  number of ranks
  Joining(std::size_t self, std::size_t size) : self_(self), joined_(size, false), left_(size, false) {}

  /// Returns the error of a request or join after a departure; nothing before. @param what  the request or "join", for
  /// the message
  std::optional<RequestError> refuse(const std::string& what) const;
  /// Makes this rank join in the next negotiation. Idempotent until all ranks have joined.
  void join() { join_unannounced_ = join_unannounced_ || !is_joined(); }
  /// Makes this rank depart in the next negotiation. No-op after the first call.
  void leave(Departure departure);
  bool has_unannounced() const { return join_unannounced_ || departure_unannounced_ != Departure::kNone; }
  /// True if this rank answers negotiations even without pending requests.
  bool takes_part() const { return is_joined() || left_[self_] || has_unannounced(); }
  /// Adds this rank's join or departure to its announcements of the negotiation that begins.
  void announce(Announcements& announcements);

  /// Records the departures of a negotiation. Returns true if there are any. @param names  descriptions of the ranks
  bool receive_departures(const std::vector<Announcements>& all, const std::vector<std::string>& names);
  /// Records the joins of a negotiation. Returns true if there are any.
  bool receive_joins(const std::vector<Announcements>& all);
  /// Ends the negotiation in which the set was closing. @returns  the rank that joined last
  int end_closing();

  const std::vector<bool>& joined() const { return joined_; }
  bool is_joined() const { return joined_[self_]; }
  bool has_any_joined() const;
  bool is_closing() const { return closing_; }
  const std::optional<RequestError>& departed() const { return departed_; }
  bool have_all_left() const;

 private:
  friend class NegotiatorProbe;  // tests check that all ranks have the same state

  void reset_joins();

  const std::size_t self_;
  std::vector<bool> joined_, left_;  // by rank
  int last_joined_ = -1;
  bool closing_ = false;
  std::optional<RequestError> departed_;  // error of the first departure
  // State of this rank only.
  bool join_unannounced_ = false;
  Departure departure_unannounced_ = Departure::kNone;
};

}  // namespace farandole
