// SPDX-License-Identifier: Apache-2.0
// Plans of collectives over several hosts: which rank does what, inside its host and across hosts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "messages/hierarchy.h"

namespace farandole {

/// An element of the caller's input or output, or of memory of the operation.
struct PlanPlace {
  enum class Memory : std::uint8_t { kNone, kInput, kOutput, kScratch };
  Memory memory = Memory::kNone;
  std::size_t first = 0;
  bool operator==(const PlanPlace&) const = default;
};

struct PlanCopy {
  PlanPlace from, to;
  std::size_t count = 0;
};

/// One collective that is a part of another: among the ranks of this host, or among those that this rank meets across
/// hosts.
struct HierarchicalPhase {
  enum class Where : std::uint8_t { kInside, kAcross };
  Where where = Where::kInside;
  Collective collective = Collective::kBarrier;
  int root = -1;  ///< a local rank, or the index of a host
  PlanPlace input, output;
  std::size_t input_count = 0, output_count = 0;
  std::vector<std::size_t> counts, recv_counts;  ///< as in a Call
  std::size_t total = 0;          ///< across: elements of the whole vector, the same on all ranks that meet
  bool prescales = false;         ///< here the caller's input is multiplied by its factor
  bool postscales = false;        ///< here everything has been added
  int after = -1;                 ///< the phase that must be complete before this one begins; -1: none
  std::vector<PlanCopy> before;   ///< what is copied when it begins
  std::vector<PlanCopy> results;  ///< what is copied when it is complete
};

/// One rank's part. Phases of the same kind run one after the other, in this order; a phase across and one inside run
/// at the same time unless one waits for the other.
struct HierarchicalPlan {
  std::vector<int>
      across;  ///< the ranks of the communicator that meet, one of each host; empty: this one carries nothing
  std::vector<HierarchicalPhase> phases;
  std::size_t scratch_count = 0;  ///< elements of the operation's memory
};

/// What is to be planned; the same on all ranks.
struct HierarchicalQuery {
  Collective collective = Collective::kBarrier;
  int root = -1;          ///< a rank of the communicator
  std::size_t count = 0;  ///< of the whole vector of an allreduce, broadcast or reduce
  std::vector<std::size_t>
      counts;                   ///< else of each rank's block; of an alltoall, whose blocks are equal, of each block
  std::size_t granularity = 1;  ///< elements that stay together where a vector is cut
  std::size_t slice_granularity = 0;  ///< where it is cut into slices, if more of them stay together then; else 0
  int carriers = 1;  ///< ranks of each host that send to other hosts: at most those of the smallest one
  int slices = 1;    ///< parts of the vector that pass through the phases one behind the other
  bool operator==(const HierarchicalQuery&) const = default;
};

/// Across hosts carrier c of a host meets carrier c of each other host, and carries its part of the vector, or the
/// blocks of the ranks that are assigned to it: its own, and those of the ranks that are no carriers by turns. The root
/// is a carrier.
///
/// Sent by a host to each other host, whatever the number of carriers: allgather and gather the blocks of its ranks,
/// scatter those of the other's, alltoall those from the ones to the others, broadcast the vector once in all;
/// allreduce, reduce and reduce_scatter what the algorithm across makes of one vector per host.
HierarchicalPlan plan_hierarchical(const HierarchicalQuery& query, const Hierarchy& hierarchy);

/// Inside phases of a plan at most.
constexpr int kMaxInsidePhases = 16;
/// Slices of a plan at most: each may have two inside phases.
constexpr int kMaxSlices = kMaxInsidePhases / 2;

/// True if an allgather among these hosts copies no block beside its phases, because the hosts, or the carriers, have
/// blocks that lie side by side in the output. Such a plan has one slice: those of a slice do not.
bool gathers_in_place(const Hierarchy& hierarchy);

}  // namespace farandole
