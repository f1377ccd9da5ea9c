// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "messages/carriers.h"
#include "messages/slice_phases.h"
#include "operation/call.h"

namespace farandole {
namespace {

using PlaceMemory = PlanPlace::Memory;
using Range = PlanRange;

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// True if the blocks of each host are contiguous in the output, and few enough hosts have an inside phase each.
bool gathers_by_host(const Hierarchy& hierarchy) {
  return hierarchy.is_regular() && hierarchy.host_count() <= kMaxInsidePhases;
}

/// Plans the phases of a slice. In names, `own` is the range of this rank, and `whole` the range of all ranks;
/// `by_carrier` and `by_host` are counts of elements.
class SlicePlanner {
 public:
  /// @param scratch_count  in: elements of scratch memory that earlier slices use; out: plus those of this slice
  SlicePlanner(const HierarchicalQuery& query, const Hierarchy& hierarchy, const Carriers& carriers, int slice,
               std::size_t& scratch_count)
      : query_(query),
        hierarchy_(hierarchy),
        carriers_(carriers),
        layout_(query, slice),
        host_(hierarchy.host),
        phases_(query.granularity, scratch_count) {
    if (is_rooted(query.collective)) root_ = hierarchy.place_of(query.root);
  }

  std::vector<StagedPhase> plan() {
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

 private:
  bool carries() const { return carriers_.carries(); }
  bool is_single() const { return carriers_.is_single(); }
  bool has_peers() const { return hierarchy_.local_size() > 1; }
  bool is_at_root_host() const { return root_.host == host_; }
  bool is_root() const { return is_at_root_host() && root_.local == hierarchy_.local; }
  int rank() const { return hierarchy_.ranks_of(host_)[static_cast<std::size_t>(hierarchy_.local)]; }
  const std::vector<int>& assigned_here() const { return carriers_.assigned(host_, carriers_.own()); }

  // Blocks of ranks.
  Range own_block_in(PlaceMemory memory) const { return layout_.block_at_origin(memory, rank()); }
  /// Elements that a carrier exchanges with each host: the blocks of the ranks that are assigned to the carrier there.
  std::vector<std::size_t> carried(int carrier) const {
    std::vector<std::size_t> by_host;
    for (int host = 0; host < hierarchy_.host_count(); ++host) {
      by_host.push_back(layout_.blocks(carriers_.assigned(host, carrier)));
    }
    return by_host;
  }
  std::vector<std::size_t> carried_by_each() const {
    std::vector<std::size_t> totals;
    for (int carrier = 0; carrier < carriers_.count(); ++carrier) totals.push_back(sum(carried(carrier)));
    return totals;
  }
  std::vector<std::size_t> blocks_of(const std::vector<int>& ranks) const {
    std::vector<std::size_t> counts;
    for (const int of : ranks) counts.push_back(layout_.block(of));
    return counts;
  }
  std::vector<std::size_t> local_blocks() const { return blocks_of(hierarchy_.ranks_of(host_)); }
  /// The blocks of all ranks in carried order: sorted by carrier, then by host, then by rank.
  std::vector<Range> carried_order(PlaceMemory memory) const {
    std::vector<Range> ranges;
    for (int carrier = 0; carrier < carriers_.count(); ++carrier) {
      for (int host = 0; host < hierarchy_.host_count(); ++host) {
        for (const int of : carriers_.assigned(host, carrier)) ranges.push_back(layout_.block_in(memory, of));
      }
    }
    return ranges;
  }

  // Parts of vectors.
  Range own_part_in(PlaceMemory memory) const { return layout_.part_in(memory, carriers_.own()); }
  Range vector_in(PlaceMemory memory) const { return layout_.vector_in(memory); }

  HierarchicalPhase& across(const Range& input, const Range& output, std::vector<std::size_t> counts,
                            std::size_t total) {
    return phases_.across(query_.collective, input, output, std::move(counts), total, root_.host);
  }
  /// A phase across on vectors, of which each carrier has a part.
  HierarchicalPhase& across(const Range& input, const Range& output) {
    return across(input, output, {},
                  layout_.vector_in(PlaceMemory::kNone).count / static_cast<std::size_t>(carriers_.count()));
  }
  HierarchicalPhase& across_blocks(const Range& input, const Range& output) {
    std::vector<std::size_t> counts = carried(carriers_.own());
    const std::size_t total = sum(counts);
    return across(input, output, std::move(counts), total);
  }

  /// Reduces the vectors of this host's ranks, and gives each carrier its part. @param own  where this carrier's part
  /// goes
  void reduce_inside(const Range& input, const Range& own, const std::vector<std::size_t>& by_carrier) {
    if (is_single()) {
      phases_.inside(0, Collective::kReduce, input, carries() ? own : Range{}, {}, carriers_.local_of(0));
    } else {
      phases_.inside(0, Collective::kReduceScatter, input, own, carriers_.by_local(by_carrier));
    }
  }
  /// Gives all ranks of this host the parts that its carriers hold: each in its `own`, a single carrier in `whole`.
  void distribute_parts(const Range& own, const Range& whole, const std::vector<std::size_t>& by_carrier) {
    if (!has_peers()) return;
    if (is_single()) {
      phases_.inside(2, Collective::kBroadcast, whole, whole, {}, carriers_.local_of(0));
    } else {
      phases_.inside(2, Collective::kAllgather, own, whole, carriers_.by_local(by_carrier));
    }
  }
  /// Brings the blocks of this host's ranks to the carriers that they are assigned to. Returns where this carrier finds
  /// its assigned blocks.
  Range collect_blocks() {
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
  /// Range in which this carrier receives the blocks of its assigned ranks of this host.
  Range received_blocks() {
    if (carriers_.all_carry_here()) return own_block_in(PlaceMemory::kOutput);
    return phases_.scratch(carries() ? layout_.blocks(assigned_here()) : 0);
  }
  /// Gives each rank of this host the rank's block, which a carrier has received.
  void distribute_blocks(const Range& received) {
    if (carriers_.all_carry_here()) return;
    const Range own = own_block_in(PlaceMemory::kOutput);
    if (is_single()) {
      phases_.inside(2, Collective::kScatter, carries() ? received : Range{}, own, local_blocks(),
                     carriers_.local_of(0));
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
  /// Ranges of the blocks of the ranks `wanted`, in memory `all` that holds the blocks of the ranks `order`.
  std::vector<Range> ranges_in(const Range& all, const std::vector<int>& order, const std::vector<int>& wanted) const {
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

  /// Barrier inside each host, barrier among the carriers, barrier inside each host.
  void plan_barrier() {
    if (has_peers()) phases_.inside(0, Collective::kBarrier, {}, {}, {});
    if (carries()) across({}, {});
    if (has_peers()) phases_.inside(2, Collective::kBarrier, {}, {}, {});
  }

  /// Reduce_scatter inside each host, so that each carrier has the host's sum of its part; allreduce of the part
  /// across; allgather inside. With a single carrier: reduce, allreduce, broadcast.
  void plan_allreduce() {
    const Range input = vector_in(PlaceMemory::kInput), own = own_part_in(PlaceMemory::kOutput);
    if (has_peers()) reduce_inside(input, own, layout_.part_counts());
    if (carries()) across(has_peers() ? own : input, own);
    distribute_parts(own, vector_in(PlaceMemory::kOutput), layout_.part_counts());
  }

  /// Broadcast inside the root's host; broadcast of each carrier's part across; allgather inside the other hosts. With
  /// a single carrier: broadcast across, at the same time as inside the root's host, then inside the other hosts.
  void plan_broadcast() {
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

  /// Reduce_scatter inside each host; reduce of each carrier's part across, to the root's host; gather to the root
  /// inside that host. With a single carrier: reduce inside, then across to the root.
  void plan_reduce() {
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

  /// Blocks to the carriers inside each host; allgather across; allgather of the carriers' blocks inside (broadcast,
  /// with a single carrier).
  void plan_allgather() {
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
  /// Range in which a carrier receives its blocks of all hosts: in the output if the output is contiguous in carried
  /// order, else in scratch memory.
  Range received_from_all(const std::vector<std::size_t>& by_carrier) {
    if (!carries()) return {};
    const auto own = static_cast<std::size_t>(carriers_.own());
    const std::vector<Range> order = merge_adjacent(carried_order(PlaceMemory::kOutput));
    if (order.size() > 1) return phases_.scratch(by_carrier[own]);
    const std::size_t before =
        std::accumulate(by_carrier.begin(), by_carrier.begin() + carriers_.own(), std::size_t{0});
    return order.empty() ? Range{} : Range{advanced(order.front().place, before), by_carrier[own]};
  }

  /// Allgather where every rank carries its own block, and the blocks of each host are contiguous in the output: a
  /// phase across, then an allgather inside per host, directly into the output. The allgather of this host's blocks
  /// does not wait for the phase across.
  void plan_allgather_by_host() {
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
  Range blocks_of_host_in(PlaceMemory memory, int host) const {
    const std::vector<int>& ranks = hierarchy_.ranks_of(host);
    return {layout_.block_in(memory, ranks.front()).place, layout_.blocks(ranks)};
  }

  /// Reduce_scatter in carried order inside each host (reduce, with a single carrier); reduce_scatter of the carried
  /// blocks across; blocks to their ranks inside.
  void plan_reduce_scatter() {
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

  /// Blocks to the carriers inside each host; gather across, to the carriers of the root's host; gather to the root
  /// inside that host.
  void plan_gather() {
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

  /// Scatter in carried order to the carriers inside the root's host; scatter across; blocks to their ranks inside.
  void plan_scatter() {
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

  // Alltoall of equal blocks. A carrier collects, inside its host, the blocks that the host's ranks send to the
  // carrier's assigned ranks on all hosts, exchanges these with its counterparts, and distributes the received blocks
  // inside the host.
  std::vector<std::size_t> times_block(std::vector<std::size_t> numbers) const {
    for (std::size_t& number : numbers) number *= layout_.block(0);
    return numbers;
  }
  /// Block number `index` in memory that holds equal blocks.
  Range block_at(const Range& all, std::size_t index) const {
    return {advanced(all.place, index * layout_.block(0)), layout_.block(0)};
  }

  void plan_alltoall() {
    const Range own = collect_exchanged();
    Range received;
    if (carries()) received = exchange_across(own);
    if (!carriers_.all_carry_here()) distribute_exchanged(received);
  }
  /// Collects the blocks that this host sends. Returns the carrier's range of them, sorted by target host, then by
  /// local rank (the sender), then by target rank.
  Range collect_exchanged() {
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
  /// Exchanges blocks with the counterparts. Returns the range of the received blocks for the carrier's assigned ranks
  /// of this host, sorted by source host, then by source rank, then by target rank.
  Range exchange_across(const Range& own) {
    const std::size_t here = assigned_here().size();
    std::vector<std::size_t> sends, receives;
    std::vector<Range> order;
    for (int host = 0; host < hierarchy_.host_count(); ++host) {
      sends.push_back(static_cast<std::size_t>(hierarchy_.local_size()) *
                      carriers_.assigned(host, carriers_.own()).size());
      receives.push_back(static_cast<std::size_t>(hierarchy_.local_size(host)) * here);
      for (const int from : hierarchy_.ranks_of(host)) order.push_back(layout_.block_in(PlaceMemory::kOutput, from));
    }
    const Range received = carriers_.all_carry_here() ? phases_.contiguous_output(order)
                                                      : phases_.scratch(sum(receives) * layout_.block(0));
    // Bytes that a rank sends on average, for the choice of an algorithm: the ranks of a large host send more than
    // those of a small host, and all must choose alike.
    const std::size_t sent = carriers_.assigned_everywhere(carriers_.own()) * query_.counts.size();
    const std::size_t total = sent * layout_.block(0) / static_cast<std::size_t>(hierarchy_.host_count());
    HierarchicalPhase& phase = across(own, received, times_block(sends), total);
    phase.recv_counts = times_block(receives);
    drop_equal_counts(phase);
    return received;
  }
  /// Sends each block that a carrier has received to its target rank inside the host.
  void distribute_exchanged(const Range& received) {
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
  /// If every rank is a carrier, all parts are equal: an alltoall without counts can be one-shot.
  void drop_equal_counts(HierarchicalPhase& phase) const {
    if (!carriers_.all_carry()) return;
    phase.counts.clear();
    phase.recv_counts.clear();
  }

  const HierarchicalQuery& query_;
  const Hierarchy& hierarchy_;
  const Carriers& carriers_;
  const SliceLayout layout_;
  const int host_;
  Hierarchy::Place root_{-1, -1};
  SlicePhases phases_;
};

}  // namespace

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
