// SPDX-License-Identifier: Apache-2.0
// The phases of one slice of a hierarchical collective, and the operation's memory between them. Pure.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "messages/carriers.h"
#include "messages/hierarchical_plan.h"

namespace farandole {

/// A phase with its place in the pipeline of slices: 0 inside, 1 across, 2 inside again.
struct StagedPhase {
  int stage = 0;
  HierarchicalPhase phase;
};

/// What lies `count` elements behind a place.
inline PlanPlace behind(PlanPlace place, std::size_t count) {
  return {place.memory, place.first + count};
}

/// Ranges that lie one behind the other become one; empty ones go.
std::vector<PlanRange> side_by_side(const std::vector<PlanRange>& ranges);

/// Phases one behind the other: each begins when the one before it is complete, unless its author says otherwise.
class SlicePhases {
 public:
  /// @param granularity  of the operation's memory, in elements
  /// @param scratch_count  elements of it that earlier slices use; grows
  SlicePhases(std::size_t granularity, std::size_t& scratch_count)
      : granularity_(granularity), scratch_count_(scratch_count) {}

  PlanRange scratch(std::size_t count);
  /// Where these ranges lie one behind the other: where they are, if they do, else in scratch memory, to which the next
  /// phase copies them when it begins.
  PlanRange joined(const std::vector<PlanRange>& ranges);
  /// The same for what the next phase writes; it copies that to these ranges when it is complete.
  PlanRange joined_results(const std::vector<PlanRange>& ranges);
  /// What the next phase copies when it is complete.
  void add_result(const PlanCopy& copy) { results_.push_back(copy); }
  std::vector<PlanCopy> take_results();

  HierarchicalPhase& inside(int stage, Collective collective, const PlanRange& input, const PlanRange& output,
                            std::vector<std::size_t> counts, int root = -1);
  HierarchicalPhase& across(Collective collective, const PlanRange& input, const PlanRange& output,
                            std::vector<std::size_t> counts, std::size_t total, int root);
  HierarchicalPhase& last() { return phases_.back().phase; }
  std::vector<StagedPhase> take() { return std::move(phases_); }

 private:
  template <class Copy>
  PlanRange join(const std::vector<PlanRange>& ranges, const Copy& copy);
  HierarchicalPhase& add(HierarchicalPhase::Where where, int stage, Collective collective, const PlanRange& input,
                         const PlanRange& output);

  const std::size_t granularity_;
  std::size_t& scratch_count_;
  std::vector<PlanCopy> before_, results_;  // of the next phase
  bool is_prescaled_ = false;
  std::vector<StagedPhase> phases_;
};

}  // namespace farandole
