// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "messages/slice_planner.h"

namespace farandole {

std::vector<StagedPhase> SlicePlanner::plan() {
  switch (query_.collective) {
    case Collective::kAllreduce:
      plan_allreduce();
      break;
    case Collective::kBroadcast:
      plan_broadcast();
      break;
    case Collective::kReduce:
      plan_reduce();
      break;
    case Collective::kAllgather:
      plan_allgather();
      break;
    case Collective::kReduceScatter:
      plan_reduce_scatter();
      break;
    case Collective::kGather:
      plan_gather();
      break;
    case Collective::kScatter:
      plan_scatter();
      break;
    case Collective::kAlltoall:
      plan_alltoall();
      break;
    case Collective::kBarrier:
      plan_barrier();
  }
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
  // The pipeline: at time t slice s is at stage t - s. Phases are ordered by time; at equal times the earlier slice,
  // which is further ahead, comes first.
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
