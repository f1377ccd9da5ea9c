// SPDX-License-Identifier: Apache-2.0
// Hierarchical collectives in host memory: shared memory inside each host, messages across hosts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "messages/hierarchical_call.h"
#include "messages/prepared_plans.h"
#include "operation/call.h"
#include "operation/operation.h"
#include "selection/method.h"
#include "shared_memory/shm_group.h"

namespace farandole {

extern const Method kHierarchicalMethod;

/// Returns the query from which every rank plans a call alike. Pure. Short vectors get a single carrier per host,
/// unless every rank can carry its own block. Longer vectors get as many carriers per host as the smallest host has
/// ranks. Long vectors of an allreduce, a broadcast, a reduce, or an allgather that needs local copies are cut into
/// slices of at least 1 MiB.
/// @param one_shot_bytes  maximum size of a vector with a single carrier per host
HierarchicalQuery hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                     std::size_t one_shot_bytes);

/// Runs a HierarchicalPlan. Inside phases are operations in shared memory (ShmOperation), phases across are schedules
/// over messages (ScheduledCollective) among this rank and its counterparts. Phases of the same kind run in sequence,
/// in the plan's order. An inside phase and a phase across may run at the same time, so that slices overlap.
///
/// The inside phases of a collective take consecutive numbers of the ShmGroup, from LaneLedger::first_number(sequence)
/// on. Make this operation only after the ranks have compared the call.
///
/// A reduction associates terms in a balanced binary tree over the ranks of a host, then as the algorithm across does.
class HierarchicalOperation final : public Operation {
 public:
  /// @param plans  the plans of `group`
  /// @param host  the ranks of this host; null if this rank is alone there
  /// @param call  outlives the operation
  HierarchicalOperation(const Group& group, PreparedPlans& plans, ShmGroup* host, const Call& call,
                        const Descriptor& descriptor, std::uint64_t sequence);
  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  using Where = HierarchicalPhase::Where;
  /// All inside phases, or all phases across, in order.
  struct Track {
    std::vector<std::size_t> phases;       ///< indices in the plan
    std::size_t at = 0;                    ///< number of phases of this track that are complete
    Call call;                             ///< the call of the running phase
    std::optional<PreparedCall> prepared;  ///< inside only: `call`, prepared
    std::unique_ptr<Operation> running;    ///< null while no phase of this track runs
    bool is_done() const { return at == phases.size(); }
  };
  State advance(Track& track);
  std::unique_ptr<Operation> begin(std::size_t index, Track& track);
  std::unique_ptr<Operation> begin_inside(Track& track);
  std::unique_ptr<Operation> begin_across(std::size_t index, const Call& call);
  void copy(const std::vector<PlanCopy>& copies) const;
  const HierarchicalPlan& plan() const { return prepared_->plan; }

  const Group& group_;
  ShmGroup* const host_;
  const Call& call_;
  const Descriptor descriptor_;
  const std::uint64_t sequence_;
  const std::shared_ptr<const PreparedPlan> prepared_;
  const Scratch scratch_;
  const PlanMemory memory_;
  std::vector<bool> is_complete_;  // by phase of the plan
  std::array<Track, 2> tracks_;    // inside, across; declared last, so that operations end before their memory is freed
};

}  // namespace farandole
