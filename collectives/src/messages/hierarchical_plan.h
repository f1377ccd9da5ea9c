// SPDX-License-Identifier: Apache-2.0
// Plans of collectives over several hosts: the phases of each rank, inside its host and across hosts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "messages/hierarchy.h"

namespace farandole {

/// A position: element `first` of the caller's input, of the caller's output, or of the operation's scratch memory.
struct PlanPlace {
  enum class Memory : std::uint8_t { kNone, kInput, kOutput, kScratch };
  Memory memory = Memory::kNone;
  std::size_t first = 0;
  bool operator==(const PlanPlace&) const = default;
};

/// A local copy of `count` elements.
struct PlanCopy {
  PlanPlace from, to;
  std::size_t count = 0;
};

/// A phase of a plan: a collective among the ranks of this host (kInside), or among this rank and its counterparts on
/// the other hosts (kAcross), with the local copies before and after it.
struct HierarchicalPhase {
  enum class Where : std::uint8_t { kInside, kAcross };
  Where where = Where::kInside;
  Collective collective = Collective::kBarrier;
  int root = -1;  ///< inside: a local rank; across: the index of a host
  PlanPlace input, output;
  std::size_t input_count = 0, output_count = 0;
  std::vector<std::size_t> counts, recv_counts;  ///< as in a Call
  std::size_t total = 0;          ///< across: elements of the whole vector; the same on all ranks of the phase
  bool prescales = false;         ///< the phase that reads the caller's input applies the caller's prescale
  bool postscales = false;        ///< the phase that adds the last terms applies the final scale
  int after = -1;                 ///< index of the phase that must be complete before this phase begins; -1 if none
  std::vector<PlanCopy> before;   ///< copies to make when the phase begins
  std::vector<PlanCopy> results;  ///< copies to make when the phase is complete
};

/// This rank's part of a hierarchical collective. All inside phases run in sequence, in the order of `phases`, and so
/// do all phases across. An inside phase and a phase across may run at the same time unless `after` orders them.
struct HierarchicalPlan {
  std::vector<int> across;  ///< members of the phases across, as ranks of the communicator: one rank of each host;
                            ///< empty if this rank has no phases across
  std::vector<HierarchicalPhase> phases;
  std::size_t scratch_count = 0;  ///< size of the operation's scratch memory, in elements
};

/// Input of plan_hierarchical; the same on all ranks.
struct HierarchicalQuery {
  Collective collective = Collective::kBarrier;
  int root = -1;                      ///< a rank of the communicator
  std::size_t count = 0;              ///< allreduce, broadcast, reduce: elements of the whole vector
  std::vector<std::size_t> counts;    ///< other collectives: elements of each rank's block; alltoall has equal blocks
  std::size_t granularity = 1;        ///< vectors are cut at multiples of this number of elements
  std::size_t slice_granularity = 0;  ///< coarser granularity for the cuts between slices; 0 if it is the same
  int carriers = 1;  ///< ranks of each host that exchange with other hosts; at most the size of the smallest host
  int slices = 1;    ///< parts of the vector that pass through the phases as a pipeline
  bool operator==(const HierarchicalQuery&) const = default;
};

/// Plans this rank's part of a collective over several hosts. The plans of all ranks fit together, because all follow
/// from the same query.
///
/// Some or all ranks of each host, its carriers, exchange data with other hosts. Carrier c exchanges with its
/// counterparts: carrier c of every other host. In allreduce, broadcast and reduce carrier c carries part c of the
/// vector. In the other collectives carrier c carries the blocks of the ranks assigned to it: its own block, and a
/// share of the blocks of ranks that are no carriers, assigned round robin. In a rooted collective the root is a
/// carrier.
///
/// Most collectives have three phases: inside the host, which gives each carrier the data that it carries; across
/// hosts; inside the host again. Allreduce with several carriers, for example, is a reduce_scatter among the ranks of
/// the host, an allreduce among counterparts, and an allgather among the ranks of the host; with a single carrier, a
/// reduce, an allreduce and a broadcast. With `slices` > 1 the vector passes in slices: while one slice is exchanged
/// across hosts, the next is reduced inside.
///
/// The bytes that a host sends to another host do not depend on the number of carriers. In allgather and gather: the
/// blocks of the sending host's ranks. In scatter: the blocks of the receiving host's ranks. In alltoall: the blocks
/// from the ranks of one host to the ranks of the other. In broadcast: the vector once, over all carriers together. In
/// allreduce, reduce and reduce_scatter: the bytes that the algorithm across sends for one vector per host.
HierarchicalPlan plan_hierarchical(const HierarchicalQuery& query, const Hierarchy& hierarchy);

/// Maximum number of inside phases of a plan.
constexpr int kMaxInsidePhases = 16;
/// Maximum number of slices of a plan: each slice may have two inside phases.
constexpr int kMaxSlices = kMaxInsidePhases / 2;

/// True if an allgather among these hosts needs no local copies, because the blocks of each host, or of each carrier,
/// are contiguous in the output. Such an allgather is planned as a single slice, because in slices the blocks would not
/// be contiguous.
bool gathers_in_place(const Hierarchy& hierarchy);

}  // namespace farandole
