// SPDX-License-Identifier: Apache-2.0
// Allreduce over several hosts: shared memory inside, messages across.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/hierarchy.h"
#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/operation.h"
#include "schedule/layout.h"
#include "selection/method.h"
#include "shared_memory/shm_group.h"

namespace farandole {

extern const Method kHierarchicalMethod;

/// Large vectors on equal hosts: reduce_scatter inside each host, allreduce across hosts by every local rank on its
/// part, allgather inside. Else: reduce to each host's first rank, allreduce among these, broadcast inside.
///
/// Bytes sent to other hosts per rank, with H hosts of L ranks: 2(N/L)(H-1)/H with the ring; for small vectors, by the
/// leaders only, N log2(H). Association: inside the host as a balanced binary tree, then as the algorithm across.
class HierarchicalAllreduce final : public Operation {
 public:
  /// @param host  of this rank, or null where it is alone on its host
  /// @param call  outlives the operation
  HierarchicalAllreduce(const Group& group, const Hierarchy& hierarchy, ShmGroup* host, const Call& call,
                        const Descriptor& descriptor, std::uint64_t sequence);
  State advance() override;
  std::vector<int> waits_for() const override;
  Aftermath withdraw() override { return running_ ? running_->withdraw() : Aftermath::kNone; }

 private:
  enum class Phase { kInside, kAcross, kBack, kDone };
  void begin();
  void begin_inside();
  void begin_across();
  void begin_back();
  ReduceOp inner_op() const;
  Call inner_call(Collective collective) const;
  /// What this rank stands for across hosts: its part of the output, or all of it.
  BufferView own_values() const;
  std::unique_ptr<Operation> run_inside(std::uint64_t number);

  const Group& group_;
  const Hierarchy& hierarchy_;
  ShmGroup* const host_;
  const Call& call_;
  const Descriptor descriptor_;
  const std::uint64_t sequence_;
  const bool by_parts_;
  Phase phase_ = Phase::kInside;
  Offsets parts_;                    // of the local ranks, in elements
  std::vector<std::size_t> counts_;  // of the same parts
  Call inner_;
  std::unique_ptr<Operation> running_;
};

}  // namespace farandole
