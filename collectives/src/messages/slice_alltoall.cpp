// SPDX-License-Identifier: Apache-2.0
// Alltoall of equal blocks.
#include <algorithm>

#include "messages/slice_planner.h"

namespace farandole {

std::vector<std::size_t> SlicePlanner::times_block(std::vector<std::size_t> numbers) const {
  for (std::size_t& number : numbers) number *= layout_.block(0);
  return numbers;
}

PlanRange SlicePlanner::block_at(const Range& all, std::size_t index) const {
  return {advanced(all.place, index * layout_.block(0)), layout_.block(0)};
}

void SlicePlanner::plan_alltoall() {
  const Range own = collect_exchanged();
  Range received;
  if (carries()) received = exchange_across(own);
  if (!carriers_.all_carry_here()) distribute_exchanged(received);
}

PlanRange SlicePlanner::collect_exchanged() {
  const Range sent = phases_.contiguous_input(carried_order(PlaceMemory::kInput));
  if (!has_peers()) return sent;
  std::vector<std::size_t> to_carriers;
  for (int carrier = 0; carrier < carriers_.count(); ++carrier)
    to_carriers.push_back(carriers_.assigned_everywhere(carrier));
  const std::size_t from_each = carries() ? carriers_.assigned_everywhere(carriers_.own()) : 0;
  const auto locals = static_cast<std::size_t>(hierarchy_.local_size());
  const Range all = phases_.scratch(from_each * locals * layout_.block(0));
  HierarchicalPhase& phase =
      phases_.inside(0, Collective::kAlltoall, sent, all, times_block(carriers_.by_local(to_carriers)));
  phase.recv_counts = times_block(std::vector<std::size_t>(locals, from_each));
  drop_equal_counts(phase);
  if (!carries()) return {};
  std::vector<Range> order;
  std::size_t before = 0;
  for (int host = 0; host < hierarchy_.host_count(); ++host) {
    const std::size_t targets = carriers_.assigned(host, carriers_.own()).size();
    for (std::size_t local = 0; local < locals; ++local) {
      for (std::size_t target = 0; target < targets; ++target) {
        order.push_back(block_at(all, local * from_each + before + target));
      }
    }
    before += targets;
  }
  return phases_.contiguous_input(order);
}

PlanRange SlicePlanner::exchange_across(const Range& own) {
  const std::size_t here = assigned_here().size();
  std::vector<std::size_t> sends, receives;
  std::vector<Range> order;
  for (int host = 0; host < hierarchy_.host_count(); ++host) {
    sends.push_back(static_cast<std::size_t>(hierarchy_.local_size()) *
                    carriers_.assigned(host, carriers_.own()).size());
    receives.push_back(static_cast<std::size_t>(hierarchy_.local_size(host)) * here);
    for (const int from : hierarchy_.ranks_of(host)) order.push_back(layout_.block_in(PlaceMemory::kOutput, from));
  }
  const Range received =
      carriers_.all_carry_here() ? phases_.contiguous_output(order) : phases_.scratch(sum(receives) * layout_.block(0));
  // Select the algorithm by the bytes that a rank sends on average: ranks of a large host send more than ranks of a
  // small host, but all must select the same algorithm.
  const std::size_t sent = carriers_.assigned_everywhere(carriers_.own()) * query_.counts.size();
  const std::size_t total = sent * layout_.block(0) / static_cast<std::size_t>(hierarchy_.host_count());
  HierarchicalPhase& phase = across(own, received, times_block(sends), total);
  phase.recv_counts = times_block(receives);
  drop_equal_counts(phase);
  return received;
}

void SlicePlanner::distribute_exchanged(const Range& received) {
  const auto locals = static_cast<std::size_t>(hierarchy_.local_size());
  std::vector<std::size_t> sends(locals), receives(locals);
  std::vector<Range> order;
  const std::size_t size = query_.counts.size();
  const std::vector<int> here = carries() ? assigned_here() : std::vector<int>{};
  for (std::size_t index = 0; index < here.size(); ++index) {
    sends[static_cast<std::size_t>(hierarchy_.place_of(here[index]).local)] = size;
    for (std::size_t from = 0; from < size; ++from) order.push_back(block_at(received, from * here.size() + index));
  }
  for (int carrier = 0; carrier < carriers_.count(); ++carrier) {
    const std::vector<int> ranks = carriers_.assigned(host_, carrier);
    if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) continue;
    receives[static_cast<std::size_t>(carriers_.local_of(carrier))] = size;
  }
  const Range sent = phases_.contiguous_input(order);
  std::vector<Range> targets;
  for (int host = 0; host < hierarchy_.host_count(); ++host) {
    for (const int from : hierarchy_.ranks_of(host)) targets.push_back(layout_.block_in(PlaceMemory::kOutput, from));
  }
  const Range result = phases_.contiguous_output(targets);
  HierarchicalPhase& phase = phases_.inside(2, Collective::kAlltoall, sent, result, times_block(sends));
  phase.recv_counts = times_block(receives);
}

void SlicePlanner::drop_equal_counts(HierarchicalPhase& phase) const {
  if (!carriers_.all_carry()) return;
  phase.counts.clear();
  phase.recv_counts.clear();
}

}  // namespace farandole
