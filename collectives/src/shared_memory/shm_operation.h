// SPDX-License-Identifier: Apache-2.0
// A collective among the ranks of one host, through memory that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/operation.h"
#include "shared_memory/arrival.h"
#include "shared_memory/one_shot.h"
#include "shared_memory/pipeline.h"
#include "shared_memory/shm_group.h"

namespace farandole {

extern const Method kShmMethod;

/// The rank connects, waits until the lane is free, and arrives, which compares what the ranks called. Short vectors
/// are one-shot: nothing follows but that each takes what it needs. Longer ones pass through the pipeline.
/// Synchronisations: one for a one-shot collective; else one per slice and stage, and one at the end if peers use this
/// rank's buffers.
///
/// Bytes copied or reduced per rank of an allreduce of N among P: one-shot N(P+3), of which the
/// rank's own N come from its input; through staging memory 5N-2N/P; in
/// windows 2N. Reductions associate as a balanced binary tree over the ranks, so all ways give the same bits.
///
/// The lane is the operation's from its construction to its destruction; what lies in it, and who may write that when,
/// say Arrival, OneShot and Pipeline.
class ShmOperation final : public Operation {
 public:
  /// What the operation is for: the whole collective, or only to compare what the ranks called.
  enum class Purpose { kCollective, kComparison };
  /// @param call  outlives the operation; ranks of it are those of `host`.   @param number  grows from call to call
  /// @param has_arrived  the caller has published this rank's arrival, in full
  ShmOperation(const Group& group, ShmGroup& host, const Call& call, const Descriptor& descriptor, std::uint64_t number,
               Purpose purpose, bool has_arrived = false);
  /// The same collective will run operation `number` in the same lane after this one.
  void set_followed_by(std::uint64_t number) { followed_by_ = number; }
  ~ShmOperation() override;
  ShmOperation(const ShmOperation&) = delete;
  ShmOperation& operator=(const ShmOperation&) = delete;

  /// @throws Mismatch  on all ranks, before data is touched
  State advance() override;
  std::vector<int> waits_for() const override;
  /// Waits until no peer touches this rank's memory.
  BufferHazard withdraw() override;

 private:
  enum class Phase { kConnect, kAwaitLane, kArrive, kDescribe, kRun, kDone };
  void arrive();

  const Group& group_;
  ShmGroup& host_;
  const bool has_arrived_;
  std::uint64_t followed_by_ = 0;
  Arrival arrival_;
  const std::uint64_t previous_;     // what all must have completed before the lane may be written
  std::vector<std::size_t> firsts_;  // where the parts of the ranks begin, for collectives with counts
  // Of a comparison neither.
  std::optional<OneShot> one_shot_;
  std::optional<Pipeline> pipeline_;
  Phase phase_ = Phase::kConnect;
};

}  // namespace farandole
