// SPDX-License-Identifier: Apache-2.0
// Plans of hierarchical collectives, simulated on numbers for all ranks together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "messages/hierarchical_plan.h"

namespace farandole {

using PlaceMemory = PlanPlace::Memory;
using Integers = std::vector<std::int64_t>;
using PartCounts = std::vector<std::size_t>;

std::size_t total_of(const PartCounts& counts);

/// All ranks of a collective.
class PlannedRanks {
 public:
  PlannedRanks(const HierarchicalQuery& query, const std::vector<int>& host_of_rank);

  /// Runs whatever can run, until nothing can. False: some rank is not at its end.
  bool run();

  /// The first wrong element of any rank, or nothing.
  std::string difference() const;

  /// Elements that `from`'s ranks have for the ranks of host `to`, in all phases across; where blocks move.
  std::size_t crossed(int from, int to) const;
  /// The same, of the whole vector, where vectors move.
  std::size_t crossed_by_parts() const { return crossed_by_parts_; }
  std::size_t most_inside_phases() const;

 private:
  struct Side {
    Hierarchy hierarchy;
    HierarchicalPlan plan;
    Integers input, output, scratch;
    std::vector<bool> is_complete;
  };
  int size() const { return static_cast<int>(sides_.size()); }
  Side& at(int rank) { return sides_[static_cast<std::size_t>(rank)]; }
  const Side& at(int rank) const { return sides_[static_cast<std::size_t>(rank)]; }

  std::size_t input_count(int rank, std::size_t size) const;
  std::size_t output_count(int rank) const;
  Integers expected(int rank) const;

  /// The index of the rank's next phase of that kind; -1: none, or it waits for one of the other kind.
  int next_phase(int rank, HierarchicalPhase::Where where) const;
  Integers& memory(int rank, PlaceMemory which);
  Integers read(int rank, const PlanPlace& place, std::size_t count);
  void write(int rank, const PlanPlace& place, const Integers& values);
  void copy(int rank, const std::vector<PlanCopy>& copies);

  /// True if the ranks that take part with this one were all ready for it.
  bool run_phase_of(int rank, HierarchicalPhase::Where where);
  void note_crossing(const std::vector<int>& members, int index, const HierarchicalPhase& phase,
                     const PartCounts& sent);

  const HierarchicalQuery query_;
  std::vector<Side> sides_;
  std::map<std::pair<int, int>, std::size_t> crossed_;
  std::size_t crossed_by_parts_ = 0;
};

}  // namespace farandole
