// SPDX-License-Identifier: Apache-2.0
// Collectives of a block per rank.
#include <algorithm>

#include "messages/slice_planner.h"

namespace farandole {

PlanRange SlicePlanner::collect_blocks() {
  const Range own = own_block_in(PlaceMemory::kInput);
  if (carriers_.all_carry_here()) return own;
  const std::vector<std::size_t> counts = local_blocks();
  const Range all = phases_.scratch(sum(counts));
  if (is_single()) {
    phases_.inside(0, Collective::kGather, own, carries() ? all : Range{}, counts, carriers_.local_of(0));
    return all;
  }
  phases_.inside(0, Collective::kAllgather, own, all, counts);
  return carries() ? phases_.contiguous_input(ranges_in(all, hierarchy_.ranks_of(host_), assigned_here())) : Range{};
}

PlanRange SlicePlanner::received_blocks() {
  if (carriers_.all_carry_here()) return own_block_in(PlaceMemory::kOutput);
  return phases_.scratch(carries() ? layout_.blocks(assigned_here()) : 0);
}

void SlicePlanner::distribute_blocks(const Range& received) {
  if (carriers_.all_carry_here()) return;
  const Range own = own_block_in(PlaceMemory::kOutput);
  if (is_single()) {
    phases_.inside(2, Collective::kScatter, carries() ? received : Range{}, own, local_blocks(), carriers_.local_of(0));
    return;
  }
  std::vector<std::size_t> by_carrier;
  std::vector<int> order;
  for (int carrier = 0; carrier < carriers_.count(); ++carrier) {
    const std::vector<int> ranks = carriers_.assigned(host_, carrier);
    by_carrier.push_back(layout_.blocks(ranks));
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  const Range all = phases_.scratch(sum(by_carrier));
  phases_.add_result({ranges_in(all, order, {rank()}).front().place, own.place, own.count});
  phases_.inside(2, Collective::kAllgather, received, all, carriers_.by_local(by_carrier));
}

std::vector<PlanRange> SlicePlanner::ranges_in(const Range& all, const std::vector<int>& order,
                                               const std::vector<int>& wanted) const {
  std::vector<Range> ranges;
  std::size_t first = 0;
  for (const int of : order) {
    if (std::find(wanted.begin(), wanted.end(), of) != wanted.end()) {
      ranges.push_back({advanced(all.place, first), layout_.block(of)});
    }
    first += layout_.block(of);
  }
  return ranges;
}

void SlicePlanner::plan_allgather() {
  if (query_.slices == 1 && !is_single() && carriers_.all_carry() && gathers_by_host(hierarchy_))
    return plan_allgather_by_host();
  const Range own = collect_blocks();
  const std::vector<std::size_t> by_carrier = carried_by_each();
  if (is_single()) {
    const Range whole = phases_.contiguous_output(carried_order(PlaceMemory::kOutput));
    // The copies to the output belong to the last phase: `distribute_parts` if there are peers, else the phase
    // across.
    std::vector<PlanCopy> results = phases_.take_results();
    if (carries()) across_blocks(own, whole);
    distribute_parts(whole, whole, by_carrier);
    phases_.last().results = std::move(results);
    return;
  }
  const Range received = received_from_all(by_carrier);
  if (carries()) across_blocks(own, received);
  const Range whole = phases_.contiguous_output(carried_order(PlaceMemory::kOutput));
  distribute_parts(received, whole, by_carrier);
}

PlanRange SlicePlanner::received_from_all(const std::vector<std::size_t>& by_carrier) {
  if (!carries()) return {};
  const auto own = static_cast<std::size_t>(carriers_.own());
  const std::vector<Range> order = merge_adjacent(carried_order(PlaceMemory::kOutput));
  if (order.size() > 1) return phases_.scratch(by_carrier[own]);
  const std::size_t before = std::accumulate(by_carrier.begin(), by_carrier.begin() + carriers_.own(), std::size_t{0});
  return order.empty() ? Range{} : Range{advanced(order.front().place, before), by_carrier[own]};
}

void SlicePlanner::plan_allgather_by_host() {
  const Range own = own_block_in(PlaceMemory::kInput);
  const std::vector<std::size_t> counts = carried(carriers_.own());
  const Range received = phases_.scratch(sum(counts));
  across_blocks(own, received);
  std::size_t before = 0;
  for (int host = 0; host < hierarchy_.host_count(); ++host) {
    const std::size_t count = counts[static_cast<std::size_t>(host)];
    const Range of_host{advanced(received.place, before), count};
    before += count;
    const bool is_here = host == host_;
    HierarchicalPhase& phase =
        phases_.inside(is_here ? 0 : 2, Collective::kAllgather, is_here ? own : of_host,
                       blocks_of_host_in(PlaceMemory::kOutput, host), blocks_of(hierarchy_.ranks_of(host)));
    phase.after = is_here ? -1 : 0;
  }
}

PlanRange SlicePlanner::blocks_of_host_in(PlaceMemory memory, int host) const {
  const std::vector<int>& ranks = hierarchy_.ranks_of(host);
  return {layout_.block_in(memory, ranks.front()).place, layout_.blocks(ranks)};
}

void SlicePlanner::plan_reduce_scatter() {
  const std::vector<std::size_t> by_carrier = carried_by_each();
  Range own = phases_.contiguous_input(carried_order(PlaceMemory::kInput));
  if (has_peers()) {
    const Range whole = own;
    own = phases_.scratch(carries() ? by_carrier[static_cast<std::size_t>(carriers_.own())] : 0);
    reduce_inside(whole, own, by_carrier);
  }
  const Range received = received_blocks();
  if (carries()) across_blocks(own, received);
  distribute_blocks(received);
}

void SlicePlanner::plan_gather() {
  const Range own = collect_blocks();
  if (is_at_root_host() && is_single()) {
    if (carries()) {
      const Range whole = phases_.contiguous_output(carried_order(PlaceMemory::kOutput));
      across_blocks(own, whole);
    }
    return;
  }
  Range received;
  if (carries() && is_at_root_host()) received = phases_.scratch(sum(carried(carriers_.own())));
  if (carries()) across_blocks(own, received);
  if (!is_at_root_host()) return;
  const Range whole = is_root() ? phases_.contiguous_output(carried_order(PlaceMemory::kOutput)) : Range{};
  phases_.inside(2, Collective::kGather, received, whole, carriers_.by_local(carried_by_each()), root_.local);
}

void SlicePlanner::plan_scatter() {
  Range own;
  if (is_root()) own = phases_.contiguous_input(carried_order(PlaceMemory::kInput));
  if (is_at_root_host() && !is_single()) {
    const Range whole = own;
    own = phases_.scratch(carries() ? sum(carried(carriers_.own())) : 0);
    phases_.inside(0, Collective::kScatter, whole, own, carriers_.by_local(carried_by_each()), root_.local);
  }
  const Range received = received_blocks();
  if (carries()) across_blocks(own, received);
  distribute_blocks(received);
}

}  // namespace farandole
