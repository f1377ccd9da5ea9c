// SPDX-License-Identifier: Apache-2.0
// Requests that some ranks have announced by name, and not yet all.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "request.h"

namespace farandole {

/// A name is *complete* when all ranks that have not joined have announced it. Then it is settled: it gets a slot, or
/// ranks disagree about it and it fails.
///
/// Invariants:
/// - The same on all ranks between negotiations: it changes by what all ranks have received, in order of rank.
/// - A name in here has been announced by one rank at least, and none is complete between negotiations.
class AnnouncedRequests {
 public:
  /// What has become of a complete name.
  struct Settled {
    SharedSpec spec;       ///< that the ranks have announced
    bool in_step = false;  ///< some rank has announced it in a step
    bool is_own = false;   ///< this rank has announced it
    std::string mismatch;  ///< how ranks disagree, if they do
  };
  using IsOver = std::function<bool(std::size_t rank, const Announcement&)>;

  /// @param self  this rank
  explicit AnnouncedRequests(std::size_t self) : self_(self) {}

  /// `rank` announces a request. @param joined  by rank   @returns  true if its name is complete
  bool add(std::size_t rank, const Announcement& announcement, const std::vector<bool>& joined);
  /// Names that are complete, ascending.
  std::vector<std::string> complete(const std::vector<bool>& joined) const;
  /// Takes a complete name out; nothing if it is not in here. @param names  of the ranks, for messages
  std::optional<Settled> settle(const std::string& name, const std::vector<std::string>& names);
  /// What a rank has announced is over, where this says so.
  void forget(const IsOver& is_over);
  void clear() { by_name_.clear(); }
  /// The ranks that a name waits for; none if no rank has announced it.
  std::vector<std::size_t> missing(const std::string& name, const std::vector<bool>& joined) const;

 private:
  friend class NegotiatorProbe;  // tests compare all ranks
  using ByRank = std::vector<Announcement>;

  const std::size_t self_;
  std::map<std::string, ByRank> by_name_;  // in an order that is the same on all ranks
};

}  // namespace farandole
