// SPDX-License-Identifier: Apache-2.0
// Which ranks carry what between hosts, and what of it is in one slice. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "messages/hierarchical_plan.h"
#include "messages/hierarchy.h"
#include "operation/call.h"
#include "schedule/layout.h"

namespace farandole {

/// The carriers of each host: its first ranks, and in a rooted collective the root. Const after construction.
class Carriers {
 public:
  Carriers(const HierarchicalQuery& query, const Hierarchy& hierarchy);

  /// Of each host.
  int count() const { return count_; }
  bool is_single() const { return count_ == 1; }
  /// The carrier that this rank is; -1: none.
  int own() const { return own_; }
  bool carries() const { return own_ >= 0; }
  /// On each host every rank is a carrier.
  bool all_carry() const { return all_carry_; }
  /// Each rank of this host carries for itself only.
  bool all_carry_here() const { return hierarchy_.local_size() == count_; }
  /// The local rank of a carrier of this host.
  int local_of(int carrier) const;
  /// The ranks of a host whose blocks go by a carrier: its own block, and the blocks of ranks that are no carriers,
  /// which the carriers take by turns.
  const std::vector<int>& assigned(int host, int carrier) const;
  /// Ranks of all hosts whose blocks go by a carrier.
  std::size_t assigned_everywhere(int carrier) const;
  /// What the carriers of this host have, as counts of its local ranks.
  std::vector<std::size_t> by_local(const std::vector<std::size_t>& by_carrier) const;
  /// The ranks of the communicator that meet this one, one of each host; empty: it is no carrier.
  std::vector<int> met() const;

 private:
  const Hierarchy& hierarchy_;
  const int count_;
  int own_ = -1;
  bool all_carry_ = true;
  std::vector<std::vector<int>> locals_;                 // by host and carrier, ascending
  std::vector<std::vector<std::vector<int>>> assigned_;  // by host and carrier
};

/// A range of elements.
struct PlanRange {
  PlanPlace place;
  std::size_t count = 0;
};

/// The part of a collective's vector, and of each rank's block, that one slice is. Const after construction.
class SliceLayout {
 public:
  SliceLayout(const HierarchicalQuery& query, int slice);

  std::size_t block(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::size_t blocks(const std::vector<int>& ranks) const;
  /// A rank's block, in memory that holds the blocks of all ranks.
  PlanRange block_in(PlanPlace::Memory memory, int rank) const;
  /// A rank's block, in memory that holds no other.
  PlanRange block_at_origin(PlanPlace::Memory memory, int rank) const;
  PlanRange whole_in(PlanPlace::Memory memory) const { return {{memory, whole_.first}, whole_.count}; }
  /// A carrier's part of the vector; nothing for carrier -1.
  PlanRange part_in(PlanPlace::Memory memory, int carrier) const;
  /// Of the vector, by carrier.
  std::vector<std::size_t> part_counts() const;

 private:
  std::vector<std::size_t> skipped_, counts_, firsts_;  // by rank: what earlier slices have, this one, where it begins
  Extent whole_;                                        // of the vector
  Offsets parts_;                                       // of it, for the carriers
};

}  // namespace farandole
