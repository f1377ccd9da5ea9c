// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "messages/slice_planner.h"

namespace farandole {

std::vector<StagedPhase> SlicePlanner::plan() {
  // By Collective.
  constexpr std::array<void (SlicePlanner::*)(), kCollectiveCount> kPlans{
      &SlicePlanner::plan_allreduce, &SlicePlanner::plan_broadcast,      &SlicePlanner::plan_reduce,
      &SlicePlanner::plan_allgather, &SlicePlanner::plan_reduce_scatter, &SlicePlanner::plan_gather,
      &SlicePlanner::plan_scatter,   &SlicePlanner::plan_alltoall,       &SlicePlanner::plan_barrier};
  (this->*kPlans[static_cast<std::size_t>(query_.collective)])();
  return phases_.take();
}

bool gathers_in_place(const Hierarchy& hierarchy) {
  return gathers_by_host(hierarchy) || hierarchy.is_round_robin();
}

HierarchicalPlan plan_hierarchical(const HierarchicalQuery& query, const Hierarchy& hierarchy) {
  HierarchicalPlan plan;
  const Carriers carriers(query, hierarchy);
  struct PlannedPhase {
    int slice, index;  // index of the phase within its slice
    StagedPhase staged;
  };
  std::vector<PlannedPhase> planned;
  for (int slice = 0; slice < query.slices; ++slice) {
    std::vector<StagedPhase> phases = SlicePlanner(query, hierarchy, carriers, slice, plan.scratch_count).plan();
    for (std::size_t i = 0; i < phases.size(); ++i) {
      planned.push_back({slice, static_cast<int>(i), std::move(phases[i])});
    }
  }
  // The pipeline: at time t slice s is at stage t - s. Order phases by time; at equal times the earlier slice comes
  // first.
  std::stable_sort(planned.begin(), planned.end(), [](const PlannedPhase& a, const PlannedPhase& b) {
    return std::pair(a.slice + a.staged.stage, a.slice) < std::pair(b.slice + b.staged.stage, b.slice);
  });
  std::map<std::pair<int, int>, int> places;  // (slice, index in the slice) → index in the plan
  for (const PlannedPhase& entry : planned) places[{entry.slice, entry.index}] = static_cast<int>(places.size());
  for (const PlannedPhase& entry : planned) {
    HierarchicalPhase phase = entry.staged.phase;
    if (phase.after >= 0) phase.after = places.at({entry.slice, phase.after});
    plan.phases.push_back(std::move(phase));
  }
  plan.across = carriers.counterparts();
  return plan;
}

}  // namespace farandole
