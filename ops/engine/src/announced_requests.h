// SPDX-License-Identifier: Apache-2.0
// Requests that some ranks, but not all, have announced by name.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "request.h"

namespace farandole {

/// Collects announcements per name. A name is *complete* once every rank that has not joined has announced it. The
/// negotiator then *settles* the name: the request gets a slot if the announcements are equal, and fails otherwise.
///
/// Invariants:
/// - Equal on all ranks between negotiations: the table changes only by data that all ranks have received, in order of
///   rank.
/// - Each name in the table has been announced by some rank; between negotiations no name is complete.
class AnnouncedRequests {
 public:
  /// Result of settling a complete name.
  struct Settled {
    SharedSpec spec;       ///< description by the lowest rank that announced the name
    bool in_step = false;  ///< a rank has announced the name in a step
    bool is_own = false;   ///< this rank has announced the name
    std::string mismatch;  ///< description of how the ranks disagree; empty if they agree
  };
  /// Returns true if the announcement of `rank` is to be dropped.
  using DropPredicate = std::function<bool(std::size_t rank, const Announcement&)>;

  /// @param self  this rank's index in the set
  explicit AnnouncedRequests(std::size_t self) : self_(self) {}

  /// Records an announcement of `rank`. @param joined  by rank: true if the rank has joined
  /// @returns  true if the name is complete now
  bool add(std::size_t rank, const Announcement& announcement, const std::vector<bool>& joined);
  /// The complete names, ascending.
  std::vector<std::string> complete(const std::vector<bool>& joined) const;
  /// Removes a complete name and compares the announcements of the name. Returns nothing if the name is unknown.
  /// @param names  descriptions of the ranks, for messages
  std::optional<Settled> settle(const std::string& name, const std::vector<std::string>& names);
  /// Drops the announcements for which `drops` is true, and names without announcements.
  void forget(const DropPredicate& drops);
  void clear() { by_name_.clear(); }
  /// The ranks that have neither announced the name nor joined; empty if no rank has announced it.
  std::vector<std::size_t> missing(const std::string& name, const std::vector<bool>& joined) const;

 private:
  friend class NegotiatorProbe;  // tests check that all ranks have the same table
  /// The announcement of each rank; `spec` is null for ranks that have not announced the name.
  using ByRank = std::vector<Announcement>;

  const std::size_t self_;
  std::map<std::string, ByRank> by_name_;  // ordered, so that the order is the same on all ranks
};

}  // namespace farandole
