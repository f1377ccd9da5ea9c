// SPDX-License-Identifier: Apache-2.0
// Builder of a slice's phases in a hierarchical collective, with the scratch memory between phases. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "messages/carriers.h"
#include "messages/hierarchical_plan.h"

namespace farandole {

/// A phase with its stage in the pipeline of slices: 0 inside, 1 across, 2 inside again.
struct StagedPhase {
  int stage = 0;
  HierarchicalPhase phase;
};

/// The place `count` elements after `place`.
inline PlanPlace advanced(PlanPlace place, std::size_t count) {
  return {place.memory, place.first + count};
}

/// Merges neighbouring ranges that are contiguous in memory, and drops empty ranges.
std::vector<PlanRange> merge_adjacent(const std::vector<PlanRange>& ranges);

/// Builds the phases of a slice in order. By default a phase begins when the phase added before it is complete; the
/// planner may assign HierarchicalPhase::after to change that.
///
/// A phase needs contiguous input and output. For data in several ranges call `contiguous_input` or `contiguous_output`
/// first, then add the phase with the returned range, which may be scratch memory.
class SlicePhases {
 public:
  /// @param granularity  alignment of ranges in scratch memory, in elements
  /// @param scratch_count  elements of scratch memory that earlier slices use; this object adds its own
  SlicePhases(std::size_t granularity, std::size_t& scratch_count)
      : granularity_(granularity), scratch_count_(scratch_count) {}

  /// Allocates scratch memory of the operation.
  PlanRange scratch(std::size_t count);
  /// Returns a contiguous range with the contents of `ranges`, as input of the next phase. If `ranges` are contiguous,
  /// returns them; else returns scratch memory, to which the next phase copies `ranges` when it begins.
  PlanRange contiguous_input(const std::vector<PlanRange>& ranges);
  /// Returns a contiguous range for the output of the next phase, whose contents end up in `ranges`. If `ranges` are
  /// contiguous, returns them; else returns scratch memory, which the next phase copies to `ranges` when it is
  /// complete.
  PlanRange contiguous_output(const std::vector<PlanRange>& ranges);
  /// Adds a copy that the next phase makes when it is complete.
  void add_result(const PlanCopy& copy) { results_.push_back(copy); }
  /// Removes and returns the copies that the next phase would make when it is complete.
  std::vector<PlanCopy> take_results();

  /// Adds a phase among the ranks of this host. @param stage  0 or 2, see StagedPhase
  HierarchicalPhase& inside(int stage, Collective collective, const PlanRange& input, const PlanRange& output,
                            std::vector<std::size_t> counts, int root = -1);
  /// Adds a phase among this rank and its counterparts. @param total  see HierarchicalPhase::total
  HierarchicalPhase& across(Collective collective, const PlanRange& input, const PlanRange& output,
                            std::vector<std::size_t> counts, std::size_t total, int root);
  HierarchicalPhase& last() { return phases_.back().phase; }
  std::vector<StagedPhase> take() { return std::move(phases_); }

 private:
  template <class Copy>
  PlanRange make_contiguous(const std::vector<PlanRange>& ranges, const Copy& copy);
  HierarchicalPhase& add(HierarchicalPhase::Where where, int stage, Collective collective, const PlanRange& input,
                         const PlanRange& output);

  const std::size_t granularity_;
  std::size_t& scratch_count_;
  std::vector<PlanCopy> before_, results_;  // copies that the next phase makes
  bool is_prescaled_ = false;               // a phase of this slice applies the caller's prescale
  std::vector<StagedPhase> phases_;
};

}  // namespace farandole
