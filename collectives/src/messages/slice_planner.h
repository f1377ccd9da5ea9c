// SPDX-License-Identifier: Apache-2.0
// Planner of one slice of a hierarchical collective. slice_vectors.cpp plans collectives of whole vectors,
// slice_blocks.cpp plans collectives of a block per rank, and slice_alltoall.cpp plans the alltoall. Pure.
#pragma once

#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "messages/carriers.h"
#include "messages/slice_phases.h"
#include "operation/call.h"

namespace farandole {

/// True if each host's blocks are contiguous in the output, and a plan has room for one inside phase per host.
inline bool gathers_by_host(const Hierarchy& hierarchy) {
  return hierarchy.is_regular() && hierarchy.host_count() <= kMaxInsidePhases;
}

/// Plans the phases of a slice. In names, `own` is this rank's range, and `whole` all ranks' range; `by_carrier` and
/// `by_host` are counts of elements, indexed by carrier or by host.
class SlicePlanner {
 public:
  /// @param scratch_count  elements of scratch memory that earlier slices use; this slice adds its own
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

  std::vector<StagedPhase> plan();

 private:
  using PlaceMemory = PlanPlace::Memory;
  using Range = PlanRange;

  bool carries() const { return carriers_.carries(); }
  bool is_single() const { return carriers_.is_single(); }
  bool has_peers() const { return hierarchy_.local_size() > 1; }
  bool is_at_root_host() const { return root_.host == host_; }
  bool is_root() const { return is_at_root_host() && root_.local == hierarchy_.local; }
  int rank() const { return hierarchy_.ranks_of(host_)[static_cast<std::size_t>(hierarchy_.local)]; }
  const std::vector<int>& assigned_here() const { return carriers_.assigned(host_, carriers_.own()); }

  static std::size_t sum(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  // Blocks of ranks.
  Range own_block_in(PlaceMemory memory) const { return layout_.block_at_origin(memory, rank()); }
  /// Elements that a carrier exchanges with each host: the blocks of the host's ranks that are assigned to the carrier.
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
  /// Adds a phase across on a vector of which each carrier has a part.
  HierarchicalPhase& across(const Range& input, const Range& output) {
    return across(input, output, {},
                  layout_.vector_in(PlaceMemory::kNone).count / static_cast<std::size_t>(carriers_.count()));
  }
  HierarchicalPhase& across_blocks(const Range& input, const Range& output) {
    std::vector<std::size_t> counts = carried(carriers_.own());
    const std::size_t total = sum(counts);
    return across(input, output, std::move(counts), total);
  }

  /// Reduces the vectors of this host's ranks, and gives each carrier its part. @param own  receives this carrier's
  /// part
  void reduce_inside(const Range& input, const Range& own, const std::vector<std::size_t>& by_carrier);
  /// Gives all ranks of this host the parts that its carriers hold. Each carrier holds its part in `own`; a single
  /// carrier holds the vector in `whole`.
  void distribute_parts(const Range& own, const Range& whole, const std::vector<std::size_t>& by_carrier);

  /// Barrier inside each host, barrier among the carriers, barrier inside each host.
  void plan_barrier();
  /// Reduce_scatter inside each host, so that each carrier has the host's sum of its part; allreduce of the part
  /// across; allgather inside. With a single carrier: reduce, allreduce, broadcast.
  void plan_allreduce();
  /// Broadcast inside the root's host; broadcast of each carrier's part across; allgather inside the other hosts. With
  /// a single carrier: broadcast across, at the same time as inside the root's host, then inside the other hosts.
  void plan_broadcast();
  /// Reduce_scatter inside each host; reduce of each carrier's part across, to the root's host; gather to the root
  /// inside that host. With a single carrier: reduce inside, then across to the root.
  void plan_reduce();

  /// Brings the blocks of this host's ranks to their carriers. Returns the range of this carrier's assigned blocks.
  Range collect_blocks();
  /// Range in which this carrier receives the blocks of its assigned ranks of this host.
  Range received_blocks();
  /// Gives each rank of this host its block, which a carrier has received.
  void distribute_blocks(const Range& received);
  /// Ranges of the blocks of the ranks `wanted`, in memory `all`, which holds the blocks of the ranks `order` in
  /// sequence.
  std::vector<Range> ranges_in(const Range& all, const std::vector<int>& order, const std::vector<int>& wanted) const;

  /// Blocks to the carriers inside each host; allgather across; allgather of the carriers' blocks inside (broadcast,
  /// with a single carrier).
  void plan_allgather();
  /// Range in which a carrier receives its blocks of all hosts: in the output if the output is contiguous in carried
  /// order, else in scratch memory.
  Range received_from_all(const std::vector<std::size_t>& by_carrier);
  /// For an allgather in which every rank carries its own block, and each host's blocks are contiguous in the output: a
  /// phase across, then one allgather inside per host, directly into the output. The allgather of this host's own
  /// blocks does not wait for the phase across.
  void plan_allgather_by_host();
  Range blocks_of_host_in(PlaceMemory memory, int host) const;
  /// Reduce_scatter in carried order inside each host (reduce, with a single carrier); reduce_scatter of the carried
  /// blocks across; blocks to their ranks inside.
  void plan_reduce_scatter();
  /// Blocks to the carriers inside each host; gather across, to the carriers of the root's host; gather to the root
  /// inside that host.
  void plan_gather();
  /// Scatter in carried order to the carriers inside the root's host; scatter across; blocks to their ranks inside.
  void plan_scatter();

  // Alltoall of equal blocks. A carrier collects, inside its host, the blocks that the host's ranks send to the
  // carrier's assigned ranks on all hosts. Then the carrier exchanges these blocks with its counterparts, and
  // distributes the received blocks inside the host.
  std::vector<std::size_t> times_block(std::vector<std::size_t> numbers) const;
  /// Block number `index` in memory that holds equal blocks.
  Range block_at(const Range& all, std::size_t index) const;
  void plan_alltoall();
  /// Collects the blocks that this host sends. Returns the range of this carrier's share, sorted by target host, then
  /// by local rank (the sender), then by target rank.
  Range collect_exchanged();
  /// Exchanges blocks with the counterparts. Returns the range of the received blocks for the carrier's assigned ranks
  /// of this host, sorted by source host, then by source rank, then by target rank.
  Range exchange_across(const Range& own);
  /// Sends each block that a carrier has received to its target rank inside the host.
  void distribute_exchanged(const Range& received);
  /// If every rank is a carrier, all parts are equal: an alltoall without counts can be one-shot.
  void drop_equal_counts(HierarchicalPhase& phase) const;

  const HierarchicalQuery& query_;
  const Hierarchy& hierarchy_;
  const Carriers& carriers_;
  const SliceLayout layout_;
  const int host_;
  Hierarchy::Place root_{-1, -1};
  SlicePhases phases_;
};

}  // namespace farandole
