// SPDX-License-Identifier: Apache-2.0
// A collective over several hosts: shared memory inside, messages across.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "messages/hierarchical_call.h"
#include "messages/prepared_plans.h"
#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/operation.h"
#include "operation/scratch.h"
#include "selection/method.h"
#include "shared_memory/shm_group.h"

namespace farandole {

extern const Method kHierarchicalMethod;

/// What all ranks plan for a call; pure. @param one_shot_bytes  up to here one rank of each host carries a vector
HierarchicalQuery hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                     std::size_t one_shot_bytes);

/// Runs the phases of a plan: those inside the host as operations in shared memory, one after the other, and beside
/// them those across hosts as collectives over messages. Association of a reduction: inside the host as a balanced
/// binary tree, then as the algorithm across.
class HierarchicalOperation final : public Operation {
 public:
  /// @param plans  of the group
  /// @param host  of this rank, or null where it is alone on its host
  /// @param call  outlives the operation
  HierarchicalOperation(const Group& group, PreparedPlans& plans, ShmGroup* host, const Call& call,
                        const Descriptor& descriptor, std::uint64_t sequence);
  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  using Where = HierarchicalPhase::Where;
  /// The phases of one kind, in their order.
  struct Track {
    std::vector<std::size_t> phases;  ///< indices in the plan
    std::size_t at = 0;               ///< how many of them are complete
    Call call;                        ///< of the one that runs
    std::unique_ptr<Operation> running;
    bool is_over() const { return at == phases.size(); }
  };
  State advance(Track& track);
  std::unique_ptr<Operation> begin(std::size_t index, Track& track);
  std::unique_ptr<Operation> begin_inside(const Track& track);
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
  std::vector<bool> is_complete_;  // by phase
  std::array<Track, 2> tracks_;    // inside and across; last: they end before their memory goes
};

}  // namespace farandole
