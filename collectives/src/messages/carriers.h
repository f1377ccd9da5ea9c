// SPDX-License-Identifier: Apache-2.0
// Carriers of a hierarchical collective (the ranks that exchange data between hosts), and the data of each slice. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "messages/hierarchical_plan.h"
#include "messages/hierarchy.h"
#include "operation/call.h"
#include "schedule/layout.h"

namespace farandole {

/// The carriers of all hosts: the ranks that exchange data with other hosts (see plan_hierarchical). Every host has the
/// same number of carriers, numbered from 0: the first ranks of the host. In a rooted collective the root replaces the
/// last carrier of its host, unless the root already is a carrier. Const after construction.
class Carriers {
 public:
  Carriers(const HierarchicalQuery& query, const Hierarchy& hierarchy);

  /// Number of carriers of each host.
  int count() const { return count_; }
  bool is_single() const { return count_ == 1; }
  /// This rank's number as a carrier; -1 if this rank is no carrier.
  int own() const { return own_; }
  bool carries() const { return own_ >= 0; }
  /// True if all ranks of all hosts are carriers.
  bool all_carry() const { return all_carry_; }
  /// True if all ranks of this host are carriers, so that each carries its own block only.
  bool all_carry_here() const { return hierarchy_.local_size() == count_; }
  /// Local rank of a carrier of this host.
  int local_of(int carrier) const;
  /// Ranks of `host` whose blocks the carrier with this number exchanges: its own rank, and a share of the ranks that
  /// are no carriers, assigned round robin.
  const std::vector<int>& assigned(int host, int carrier) const;
  /// Number of ranks assigned to the carriers with this number, on all hosts together.
  std::size_t assigned_everywhere(int carrier) const;
  /// Converts counts by carrier to counts by local rank of this host; ranks that are no carriers get 0.
  std::vector<std::size_t> by_local(const std::vector<std::size_t>& by_carrier) const;
  /// This carrier and its counterparts, as ranks of the communicator, by host. Empty if this rank is no carrier.
  std::vector<int> counterparts() const;

 private:
  const Hierarchy& hierarchy_;
  const int count_;
  int own_ = -1;
  bool all_carry_ = true;
  std::vector<std::vector<int>> locals_;                 // [host][carrier]: local rank; ascending
  std::vector<std::vector<std::vector<int>>> assigned_;  // [host][carrier]: ranks
};

/// A range of elements.
struct PlanRange {
  PlanPlace place;
  std::size_t count = 0;
};

/// The elements of one slice of a collective: a part of the vector, or a part of each rank's block. Const after
/// construction.
class SliceLayout {
 public:
  SliceLayout(const HierarchicalQuery& query, int slice);

  /// Elements of a rank's block in this slice.
  std::size_t block(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  /// Elements of these ranks' blocks in this slice, together.
  std::size_t blocks(const std::vector<int>& ranks) const;
  /// A rank's block in this slice, in memory that holds all ranks' whole blocks.
  PlanRange block_in(PlanPlace::Memory memory, int rank) const;
  /// A rank's block in this slice, in memory that holds that rank's whole block only.
  PlanRange block_at_origin(PlanPlace::Memory memory, int rank) const;
  /// The vector's elements in this slice.
  PlanRange vector_in(PlanPlace::Memory memory) const { return {{memory, vector_.first}, vector_.count}; }
  /// A carrier's part of vector_in(); empty for carrier -1.
  PlanRange part_in(PlanPlace::Memory memory, int carrier) const;
  /// Sizes of the carriers' parts, by carrier.
  std::vector<std::size_t> part_counts() const;

 private:
  // By rank: elements of the block in earlier slices; elements in this slice; where the latter begin in the whole
  // vector.
  std::vector<std::size_t> skipped_, counts_, firsts_;
  Extent vector_;  // this slice's elements of the vector
  Offsets parts_;  // boundaries of the carriers' parts of `vector_`
};

}  // namespace farandole
