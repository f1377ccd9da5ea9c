// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "operation/call.h"
#include "schedule/layout.h"

namespace farandole {
namespace {

using PlanMemory = PlanPlace::Memory;
using Where = HierarchicalPhase::Where;

struct Range {
  PlanPlace place;
  std::size_t count = 0;
};

/// A phase with its place in the pipeline of slices: 0 inside, 1 across, 2 inside again.
struct StagedPhase {
  int stage = 0;
  HierarchicalPhase phase;
};

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

PlanPlace behind(PlanPlace place, std::size_t count) {
  return {place.memory, place.first + count};
}

/// Ranges that lie one behind the other become one; empty ones go.
std::vector<Range> merged(const std::vector<Range>& ranges) {
  std::vector<Range> found;
  for (const Range& range : ranges) {
    if (range.count == 0) continue;
    if (!found.empty() && behind(found.back().place, found.back().count) == range.place) {
      found.back().count += range.count;
    } else {
      found.push_back(range);
    }
  }
  return found;
}

std::vector<int> carriers_of(const HierarchicalQuery& query, const Hierarchy& hierarchy, int host) {
  std::vector<int> locals(static_cast<std::size_t>(query.carriers));
  std::iota(locals.begin(), locals.end(), 0);
  if (!is_rooted(query.collective)) return locals;
  const Hierarchy::Place root = hierarchy.place_of(query.root);
  if (root.host == host) locals.back() = std::max(locals.back(), root.local);
  return locals;
}

/// Plans one slice.
class SlicePlanner {
 public:
  /// @param scratch_count  elements that earlier slices use; grows
  SlicePlanner(const HierarchicalQuery& query, const Hierarchy& hierarchy, int slice, std::size_t& scratch_count)
      : query_(query), hierarchy_(hierarchy), scratch_count_(scratch_count), host_(hierarchy.host) {
    for (int host = 0; host < hierarchy.host_count(); ++host) {
      carriers_.push_back(carriers_of(query, hierarchy, host));
      all_carry_ = all_carry_ && hierarchy.local_size(host) == query.carriers;
    }
    if (is_rooted(query.collective)) root_ = hierarchy.place_of(query.root);
    carrier_ = carrier_at(host_, hierarchy.local);
    const auto part = [&](std::size_t count, int index) {
      return count * static_cast<std::size_t>(index) / static_cast<std::size_t>(query.slices);
    };
    std::size_t first = 0;
    for (const std::size_t count : query.counts) {
      blocks_.skipped.push_back(part(count, slice));
      blocks_.counts.push_back(part(count, slice + 1) - part(count, slice));
      blocks_.firsts.push_back(first + blocks_.skipped.back());
      first += count;
    }
    const Offsets slices =
        balanced_offsets(query.count, query.slices, 1, std::max(query.granularity, query.slice_granularity));
    whole_ = extent_of(slices, slice);
    parts_ = balanced_offsets(whole_.count, query.carriers, 1, query.granularity);
    for (std::size_t& offset : parts_) offset += whole_.first;
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
    return std::move(phases_);
  }

 private:
  // Which rank carries what.
  bool carries() const { return carrier_ >= 0; }
  bool has_peers() const { return hierarchy_.local_size() > 1; }
  bool is_single() const { return query_.carriers == 1; }
  /// Each rank of this host carries for itself only.
  bool all_carry_here() const { return hierarchy_.local_size() == query_.carriers; }
  bool is_at_root_host() const { return root_.host == host_; }
  bool is_root() const { return is_at_root_host() && root_.local == hierarchy_.local; }
  int rank() const { return hierarchy_.ranks_of(host_)[static_cast<std::size_t>(hierarchy_.local)]; }
  int local_of_carrier(int carrier) const {
    return carriers_[static_cast<std::size_t>(host_)][static_cast<std::size_t>(carrier)];
  }
  /// The carrier that a rank is; -1: none.
  int carrier_at(int host, int local) const {
    const std::vector<int>& locals = carriers_[static_cast<std::size_t>(host)];
    const auto found = std::find(locals.begin(), locals.end(), local);
    return found == locals.end() ? -1 : static_cast<int>(found - locals.begin());
  }
  /// The ranks of a host whose blocks go by a carrier.
  std::vector<int> assigned(int host, int carrier) const {
    std::vector<int> ranks;
    for (int local = 0; local < hierarchy_.local_size(host); ++local) {
      const int own = carrier_at(host, local);
      if ((own >= 0 ? own : local % query_.carriers) != carrier) continue;
      ranks.push_back(hierarchy_.ranks_of(host)[static_cast<std::size_t>(local)]);
    }
    return ranks;
  }

  // Blocks.
  std::size_t block(int of) const { return blocks_.counts[static_cast<std::size_t>(of)]; }
  std::size_t blocks(const std::vector<int>& ranks) const {
    std::size_t total = 0;
    for (const int of : ranks) total += block(of);
    return total;
  }
  /// A rank's block of this slice, in memory that holds the blocks of all.
  Range block_in(PlanMemory memory, int of) const {
    return {{memory, blocks_.firsts[static_cast<std::size_t>(of)]}, block(of)};
  }
  /// This rank's, in memory that holds no other.
  Range own_block_in(PlanMemory memory) const {
    return {{memory, blocks_.skipped[static_cast<std::size_t>(rank())]}, block(rank())};
  }
  /// Elements that a carrier has for each host, or has from it.
  std::vector<std::size_t> carried(int carrier) const {
    std::vector<std::size_t> by_host;
    for (int host = 0; host < hierarchy_.host_count(); ++host) by_host.push_back(blocks(assigned(host, carrier)));
    return by_host;
  }
  std::vector<std::size_t> local_blocks() const {
    std::vector<std::size_t> counts;
    for (const int of : hierarchy_.ranks_of(host_)) counts.push_back(block(of));
    return counts;
  }
  /// What the carriers have, as counts of the local ranks.
  std::vector<std::size_t> by_local(const std::vector<std::size_t>& by_carrier) const {
    std::vector<std::size_t> counts(static_cast<std::size_t>(hierarchy_.local_size()));
    for (int carrier = 0; carrier < query_.carriers; ++carrier) {
      counts[static_cast<std::size_t>(local_of_carrier(carrier))] = by_carrier[static_cast<std::size_t>(carrier)];
    }
    return counts;
  }
  /// The blocks in the order in which carriers have them: by carrier, by host, by rank.
  std::vector<Range> carried_order(PlanMemory memory) const {
    std::vector<Range> ranges;
    for (int carrier = 0; carrier < query_.carriers; ++carrier) {
      for (int host = 0; host < hierarchy_.host_count(); ++host) {
        for (const int of : assigned(host, carrier)) ranges.push_back(block_in(memory, of));
      }
    }
    return ranges;
  }
  std::vector<std::size_t> carried_by_each() const {
    std::vector<std::size_t> totals;
    for (int carrier = 0; carrier < query_.carriers; ++carrier) totals.push_back(sum(carried(carrier)));
    return totals;
  }

  // Parts of vectors.
  std::vector<std::size_t> part_counts() const {
    std::vector<std::size_t> counts;
    for (int carrier = 0; carrier < query_.carriers; ++carrier) counts.push_back(extent_of(parts_, carrier).count);
    return counts;
  }
  Range own_part_in(PlanMemory memory) const {
    if (!carries()) return {{memory, whole_.first}, 0};
    const Extent part = extent_of(parts_, carrier_);
    return {{memory, part.first}, part.count};
  }
  Range whole_in(PlanMemory memory) const { return {{memory, whole_.first}, whole_.count}; }

  // Memory.
  Range scratch(std::size_t count) {
    const Range range{{PlanMemory::kScratch, scratch_count_}, count};
    scratch_count_ += (count + query_.granularity - 1) / query_.granularity * query_.granularity;
    return range;
  }
  /// Where these ranges lie one behind the other: where they are, if they do, else in scratch memory, to which the next
  /// phase copies them.
  Range joined(const std::vector<Range>& ranges) {
    return join(ranges, [&](const Range& range, PlanPlace place) {
      before_.push_back({range.place, place, range.count});
    });
  }
  /// The same for what a phase writes, and copies to where it belongs.
  Range joined_results(const std::vector<Range>& ranges) {
    return join(ranges, [&](const Range& range, PlanPlace place) {
      results_.push_back({place, range.place, range.count});
    });
  }
  template <class Copy>
  Range join(const std::vector<Range>& ranges, const Copy& copy) {
    const std::vector<Range> left = merged(ranges);
    if (left.empty()) return {};
    if (left.size() == 1) return left.front();
    std::size_t total = 0;
    for (const Range& range : left) total += range.count;
    const Range all = scratch(total);
    std::size_t done = 0;
    for (const Range& range : left) {
      copy(range, behind(all.place, done));
      done += range.count;
    }
    return all;
  }

  // Phases. Each begins when the one before it is complete, unless its author says otherwise.
  HierarchicalPhase& add(Where where, int stage, Collective collective, const Range& input, const Range& output) {
    HierarchicalPhase phase;
    phase.where = where;
    phase.collective = collective;
    phase.input = input.place;
    phase.input_count = input.count;
    phase.output = output.place;
    phase.output_count = output.count;
    phase.after = static_cast<int>(phases_.size()) - 1;
    phase.before = std::exchange(before_, {});
    phase.results = std::exchange(results_, {});
    phase.prescales = reduces(collective) && !std::exchange(is_prescaled_, is_prescaled_ || reduces(collective));
    phase.postscales = reduces(collective) && where == Where::kAcross;
    phases_.push_back({stage, std::move(phase)});
    return phases_.back().phase;
  }
  HierarchicalPhase& inside(int stage, Collective collective, const Range& input, const Range& output,
                            std::vector<std::size_t> counts, int root = -1) {
    HierarchicalPhase& phase = add(Where::kInside, stage, collective, input, output);
    phase.counts = std::move(counts);
    phase.root = root;
    return phase;
  }
  HierarchicalPhase& across(const Range& input, const Range& output, std::vector<std::size_t> counts,
                            std::size_t total) {
    HierarchicalPhase& phase = add(Where::kAcross, 1, query_.collective, input, output);
    phase.counts = std::move(counts);
    phase.total = total;
    phase.root = root_.host;
    return phase;
  }
  /// Vectors, of which each carrier has a part.
  HierarchicalPhase& across(const Range& input, const Range& output) {
    return across(input, output, {}, whole_.count / static_cast<std::size_t>(query_.carriers));
  }
  HierarchicalPhase& across_blocks(const Range& input, const Range& output) {
    std::vector<std::size_t> counts = carried(carrier_);
    const std::size_t total = sum(counts);
    return across(input, output, std::move(counts), total);
  }

  /// Adds up the vectors of this host's ranks, and gives each carrier its part. @param own  where
  void reduce_inside(const Range& input, const Range& own, const std::vector<std::size_t>& by_carrier) {
    if (is_single()) {
      inside(0, Collective::kReduce, input, carries() ? own : Range{}, {}, local_of_carrier(0));
    } else {
      inside(0, Collective::kReduceScatter, input, own, by_local(by_carrier));
    }
  }
  /// Gives all ranks of this host what its carriers have. A single carrier has it in `whole`.
  void share(const Range& own, const Range& whole, const std::vector<std::size_t>& by_carrier) {
    if (!has_peers()) return;
    if (is_single()) {
      inside(2, Collective::kBroadcast, whole, whole, {}, local_of_carrier(0));
    } else {
      inside(2, Collective::kAllgather, own, whole, by_local(by_carrier));
    }
  }
  /// Brings the blocks of this host's ranks to its carriers. Returns where this one has its own.
  Range collect() {
    const Range own = own_block_in(PlanMemory::kInput);
    if (all_carry_here()) return own;
    const std::vector<std::size_t> counts = local_blocks();
    const Range all = scratch(sum(counts));
    if (is_single()) {
      inside(0, Collective::kGather, own, carries() ? all : Range{}, counts, local_of_carrier(0));
      return all;
    }
    inside(0, Collective::kAllgather, own, all, counts);
    return carries() ? joined(ranges_in(all, hierarchy_.ranks_of(host_), assigned(host_, carrier_))) : Range{};
  }
  /// Where a carrier receives the blocks of this host.
  Range received_blocks() {
    if (all_carry_here()) return own_block_in(PlanMemory::kOutput);
    return scratch(carries() ? blocks(assigned(host_, carrier_)) : 0);
  }
  /// Gives the ranks of this host the blocks that its carriers have received.
  void distribute(const Range& received) {
    if (all_carry_here()) return;
    const Range own = own_block_in(PlanMemory::kOutput);
    if (is_single()) {
      inside(2, Collective::kScatter, carries() ? received : Range{}, own, local_blocks(), local_of_carrier(0));
      return;
    }
    std::vector<std::size_t> by_carrier;
    std::vector<int> order;
    for (int carrier = 0; carrier < query_.carriers; ++carrier) {
      const std::vector<int> ranks = assigned(host_, carrier);
      by_carrier.push_back(blocks(ranks));
      order.insert(order.end(), ranks.begin(), ranks.end());
    }
    const Range all = scratch(sum(by_carrier));
    results_.push_back({ranges_in(all, order, {rank()}).front().place, own.place, own.count});
    inside(2, Collective::kAllgather, received, all, by_local(by_carrier));
  }
  /// Where the blocks of some ranks are, in memory that holds those of others in this order.
  std::vector<Range> ranges_in(const Range& all, const std::vector<int>& order, const std::vector<int>& wanted) const {
    std::vector<Range> ranges;
    std::size_t first = 0;
    for (const int of : order) {
      if (std::find(wanted.begin(), wanted.end(), of) != wanted.end()) {
        ranges.push_back({behind(all.place, first), block(of)});
      }
      first += block(of);
    }
    return ranges;
  }

  void plan_barrier() {
    if (has_peers()) inside(0, Collective::kBarrier, {}, {}, {});
    if (carries()) across({}, {});
    if (has_peers()) inside(2, Collective::kBarrier, {}, {}, {});
  }

  void plan_allreduce() {
    const Range input = whole_in(PlanMemory::kInput), own = own_part_in(PlanMemory::kOutput);
    if (has_peers()) reduce_inside(input, own, part_counts());
    if (carries()) across(has_peers() ? own : input, own);
    share(own, whole_in(PlanMemory::kOutput), part_counts());
  }

  void plan_broadcast() {
    const Range whole = whole_in(PlanMemory::kOutput), own = own_part_in(PlanMemory::kOutput);
    if (is_at_root_host() && !is_single()) inside(0, Collective::kBroadcast, whole, whole, {}, root_.local);
    if (carries()) across(own, own);
    if (is_at_root_host() && !is_single()) return;
    share(own, whole, part_counts());
    // A root that carries all of it need not wait for the other hosts.
    if (is_at_root_host()) phases_.back().phase.after = -1;
  }

  void plan_reduce() {
    const Range whole = whole_in(PlanMemory::kInput);
    Range own = whole;
    if (has_peers()) {
      own = scratch(own_part_in(PlanMemory::kInput).count);
      reduce_inside(whole, own, part_counts());
    }
    const Range result = whole_in(PlanMemory::kOutput);
    const bool is_result = is_root() && is_single();
    Range reduced;
    if (is_at_root_host() && carries()) reduced = is_result ? result : own;
    if (carries()) across(own, reduced);
    if (is_at_root_host() && !is_single()) {
      inside(2, Collective::kGather, reduced, is_root() ? result : Range{}, by_local(part_counts()), root_.local);
    }
  }

  void plan_allgather() {
    const Range own = collect();
    const std::vector<std::size_t> by_carrier = carried_by_each();
    if (is_single()) {
      const Range whole = joined_results(carried_order(PlanMemory::kOutput));
      // The last phase knows the result.
      std::vector<PlanCopy> results = std::exchange(results_, {});
      if (carries()) across_blocks(own, whole);
      share(whole, whole, by_carrier);
      phases_.back().phase.results = std::move(results);
      return;
    }
    const Range received = scratch(carries() ? by_carrier[static_cast<std::size_t>(carrier_)] : 0);
    if (carries()) across_blocks(own, received);
    const Range whole = joined_results(carried_order(PlanMemory::kOutput));
    share(received, whole, by_carrier);
  }

  void plan_reduce_scatter() {
    const std::vector<std::size_t> by_carrier = carried_by_each();
    Range own = joined(carried_order(PlanMemory::kInput));
    if (has_peers()) {
      const Range whole = own;
      own = scratch(carries() ? by_carrier[static_cast<std::size_t>(carrier_)] : 0);
      reduce_inside(whole, own, by_carrier);
    }
    const Range received = received_blocks();
    if (carries()) across_blocks(own, received);
    distribute(received);
  }

  void plan_gather() {
    const Range own = collect();
    if (is_at_root_host() && is_single()) {
      if (carries()) {
        const Range whole = joined_results(carried_order(PlanMemory::kOutput));
        across_blocks(own, whole);
      }
      return;
    }
    Range received;
    if (carries() && is_at_root_host()) received = scratch(sum(carried(carrier_)));
    if (carries()) across_blocks(own, received);
    if (!is_at_root_host()) return;
    const Range whole = is_root() ? joined_results(carried_order(PlanMemory::kOutput)) : Range{};
    inside(2, Collective::kGather, received, whole, by_local(carried_by_each()), root_.local);
  }

  void plan_scatter() {
    Range own;
    if (is_root()) own = joined(carried_order(PlanMemory::kInput));
    if (is_at_root_host() && !is_single()) {
      const Range whole = own;
      own = scratch(carries() ? sum(carried(carrier_)) : 0);
      inside(0, Collective::kScatter, whole, own, by_local(carried_by_each()), root_.local);
    }
    const Range received = received_blocks();
    if (carries()) across_blocks(own, received);
    distribute(received);
  }

  // Alltoall, of equal blocks. A carrier gets what the ranks of its host have for the ranks that it is assigned on each
  // host, and exchanges that with its counterparts.
  std::size_t assigned_everywhere(int carrier) const {
    std::size_t ranks = 0;
    for (int host = 0; host < hierarchy_.host_count(); ++host) ranks += assigned(host, carrier).size();
    return ranks;
  }
  std::vector<std::size_t> times_block(std::vector<std::size_t> numbers) const {
    for (std::size_t& number : numbers) number *= blocks_.counts.front();
    return numbers;
  }
  /// Blocks in memory that is ordered by three indices, the first one changing slowest.
  Range block_at(const Range& all, std::size_t index) const {
    return {behind(all.place, index * blocks_.counts.front()), blocks_.counts.front()};
  }

  void plan_alltoall() {
    const Range own = collect_exchanged();
    Range received;
    if (carries()) received = exchange_across(own);
    if (!all_carry_here()) distribute_exchanged(received);
  }
  /// Where a carrier has what this host sends: by host, by local rank, by rank of that host.
  Range collect_exchanged() {
    const Range sent = joined(carried_order(PlanMemory::kInput));
    if (!has_peers()) return sent;
    std::vector<std::size_t> to_carriers;
    for (int carrier = 0; carrier < query_.carriers; ++carrier) to_carriers.push_back(assigned_everywhere(carrier));
    const std::size_t from_each = carries() ? assigned_everywhere(carrier_) : 0;
    const auto locals = static_cast<std::size_t>(hierarchy_.local_size());
    const Range all = scratch(from_each * locals * blocks_.counts.front());
    HierarchicalPhase& phase = inside(0, Collective::kAlltoall, sent, all, times_block(by_local(to_carriers)));
    phase.recv_counts = times_block(std::vector<std::size_t>(locals, from_each));
    drop_equal_counts(phase);
    if (!carries()) return {};
    std::vector<Range> order;
    std::size_t before = 0;
    for (int host = 0; host < hierarchy_.host_count(); ++host) {
      const std::size_t targets = assigned(host, carrier_).size();
      for (std::size_t local = 0; local < locals; ++local) {
        for (std::size_t target = 0; target < targets; ++target) {
          order.push_back(block_at(all, local * from_each + before + target));
        }
      }
      before += targets;
    }
    return joined(order);
  }
  /// Where a carrier has received what comes for the ranks that it is assigned here: by host, by rank of that host, by
  /// rank of this one.
  Range exchange_across(const Range& own) {
    const std::size_t here = assigned(host_, carrier_).size();
    std::vector<std::size_t> sends, receives;
    std::vector<Range> order;
    for (int host = 0; host < hierarchy_.host_count(); ++host) {
      sends.push_back(static_cast<std::size_t>(hierarchy_.local_size()) * assigned(host, carrier_).size());
      receives.push_back(static_cast<std::size_t>(hierarchy_.local_size(host)) * here);
      for (const int from : hierarchy_.ranks_of(host)) order.push_back(block_in(PlanMemory::kOutput, from));
    }
    const Range received = all_carry_here() ? joined_results(order) : scratch(sum(receives) * blocks_.counts.front());
    HierarchicalPhase& phase = across(own, received, times_block(sends), 0);
    phase.recv_counts = times_block(receives);
    drop_equal_counts(phase);
    return received;
  }
  void distribute_exchanged(const Range& received) {
    const auto locals = static_cast<std::size_t>(hierarchy_.local_size());
    std::vector<std::size_t> sends(locals), receives(locals);
    std::vector<Range> order;
    const std::size_t size = blocks_.counts.size();
    const std::vector<int> here = carries() ? assigned(host_, carrier_) : std::vector<int>{};
    for (std::size_t index = 0; index < here.size(); ++index) {
      sends[static_cast<std::size_t>(hierarchy_.place_of(here[index]).local)] = size;
      for (std::size_t from = 0; from < size; ++from) order.push_back(block_at(received, from * here.size() + index));
    }
    for (int carrier = 0; carrier < query_.carriers; ++carrier) {
      const std::vector<int> ranks = assigned(host_, carrier);
      if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) continue;
      receives[static_cast<std::size_t>(local_of_carrier(carrier))] = size;
    }
    const Range sent = joined(order);
    std::vector<Range> targets;
    for (int host = 0; host < hierarchy_.host_count(); ++host) {
      for (const int from : hierarchy_.ranks_of(host)) targets.push_back(block_in(PlanMemory::kOutput, from));
    }
    const Range result = joined_results(targets);
    HierarchicalPhase& phase = inside(2, Collective::kAlltoall, sent, result, times_block(sends));
    phase.recv_counts = times_block(receives);
  }
  /// Equal parts on all ranks need no counts, and can be one-shot.
  void drop_equal_counts(HierarchicalPhase& phase) const {
    if (!all_carry_) return;
    phase.counts.clear();
    phase.recv_counts.clear();
  }

  const HierarchicalQuery& query_;
  const Hierarchy& hierarchy_;
  std::size_t& scratch_count_;
  const int host_;
  bool all_carry_ = true;                   // on each host every rank is a carrier
  std::vector<std::vector<int>> carriers_;  // of each host, local ranks in ascending order
  int carrier_ = -1;                        // that this rank is; -1: none
  Hierarchy::Place root_{-1, -1};
  struct Blocks {
    std::vector<std::size_t> skipped, counts,
        firsts;  // what earlier slices have, what this one has, and where that begins
  };
  Blocks blocks_;                           // by rank
  Extent whole_;                            // of the vector
  Offsets parts_;                           // of it, for the carriers
  std::vector<PlanCopy> before_, results_;  // of the next phase
  bool is_prescaled_ = false;
  std::vector<StagedPhase> phases_;
};

}  // namespace

HierarchicalPlan plan_hierarchical(const HierarchicalQuery& query, const Hierarchy& hierarchy) {
  HierarchicalPlan plan;
  struct Entry {
    int slice, index;  // of the phase within its slice
    StagedPhase staged;
  };
  std::vector<Entry> entries;
  for (int slice = 0; slice < query.slices; ++slice) {
    std::vector<StagedPhase> phases = SlicePlanner(query, hierarchy, slice, plan.scratch_count).plan();
    for (std::size_t i = 0; i < phases.size(); ++i) {
      entries.push_back({slice, static_cast<int>(i), std::move(phases[i])});
    }
  }
  // At each time the slice that is furthest ahead first.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.slice + a.staged.stage, a.slice) < std::pair(b.slice + b.staged.stage, b.slice);
  });
  std::map<std::pair<int, int>, int> places;  // of the phase of a slice, in the plan
  for (const Entry& entry : entries) places[{entry.slice, entry.index}] = static_cast<int>(places.size());
  for (const Entry& entry : entries) {
    HierarchicalPhase phase = entry.staged.phase;
    if (phase.after >= 0) phase.after = places.at({entry.slice, phase.after});
    plan.phases.push_back(std::move(phase));
  }
  const std::vector<int> own = carriers_of(query, hierarchy, hierarchy.host);
  const auto carrier = std::find(own.begin(), own.end(), hierarchy.local);
  if (carrier == own.end()) return plan;
  for (int host = 0; host < hierarchy.host_count(); ++host) {
    const int local = carriers_of(query, hierarchy, host)[static_cast<std::size_t>(carrier - own.begin())];
    plan.across.push_back(hierarchy.ranks_of(host)[static_cast<std::size_t>(local)]);
  }
  return plan;
}

}  // namespace farandole
