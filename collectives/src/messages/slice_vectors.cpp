// SPDX-License-Identifier: Apache-2.0
// Collectives of whole vectors, of which each carrier has a part; and the barrier.
#include "messages/slice_planner.h"

namespace farandole {

void SlicePlanner::reduce_inside(const Range& input, const Range& own, const std::vector<std::size_t>& by_carrier) {
  if (is_single()) {
    phases_.inside(0, Collective::kReduce, input, carries() ? own : Range{}, {}, carriers_.local_of(0));
  } else {
    phases_.inside(0, Collective::kReduceScatter, input, own, carriers_.by_local(by_carrier));
  }
}

void SlicePlanner::distribute_parts(const Range& own, const Range& whole, const std::vector<std::size_t>& by_carrier) {
  if (!has_peers()) return;
  if (is_single()) {
    phases_.inside(2, Collective::kBroadcast, whole, whole, {}, carriers_.local_of(0));
  } else {
    phases_.inside(2, Collective::kAllgather, own, whole, carriers_.by_local(by_carrier));
  }
}

void SlicePlanner::plan_barrier() {
  if (has_peers()) phases_.inside(0, Collective::kBarrier, {}, {}, {});
  if (carries()) across({}, {});
  if (has_peers()) phases_.inside(2, Collective::kBarrier, {}, {}, {});
}

void SlicePlanner::plan_allreduce() {
  const Range input = vector_in(PlaceMemory::kInput), own = own_part_in(PlaceMemory::kOutput);
  if (has_peers()) reduce_inside(input, own, layout_.part_counts());
  if (carries()) across(has_peers() ? own : input, own);
  distribute_parts(own, vector_in(PlaceMemory::kOutput), layout_.part_counts());
}

void SlicePlanner::plan_broadcast() {
  const Range whole = vector_in(PlaceMemory::kOutput), own = own_part_in(PlaceMemory::kOutput);
  if (is_at_root_host() && !is_single()) phases_.inside(0, Collective::kBroadcast, whole, whole, {}, root_.local);
  if (carries()) across(own, own);
  // The root has its part from the beginning, and sends to other hosts while the broadcast inside its host runs.
  if (is_root()) phases_.last().after = -1;
  if (is_at_root_host() && !is_single()) return;
  distribute_parts(own, whole, layout_.part_counts());
  // The single carrier of the root's host is the root: the broadcast inside that host does not depend on other hosts.
  if (is_at_root_host()) phases_.last().after = -1;
}

void SlicePlanner::plan_reduce() {
  const Range whole = vector_in(PlaceMemory::kInput);
  Range own = whole;
  if (has_peers()) {
    own = phases_.scratch(own_part_in(PlaceMemory::kInput).count);
    reduce_inside(whole, own, layout_.part_counts());
  }
  const Range result = vector_in(PlaceMemory::kOutput);
  const bool is_result = is_root() && is_single();
  Range reduced;
  if (is_at_root_host() && carries()) reduced = is_result ? result : own;
  if (carries()) across(own, reduced);
  if (is_at_root_host() && !is_single()) {
    phases_.inside(2, Collective::kGather, reduced, is_root() ? result : Range{},
                   carriers_.by_local(layout_.part_counts()), root_.local);
  }
}

}  // namespace farandole
