// SPDX-License-Identifier: Apache-2.0
// A collective among the ranks of a host in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "operation/call.h"
#include "operation/operation.h"
#include "shared_memory/arrival.h"
#include "shared_memory/one_shot.h"
#include "shared_memory/pipeline.h"
#include "shared_memory/shm_group.h"

namespace farandole {

extern const Method kShmMethod;

/// One rank's side of a collective among the ranks of a host. Short vectors (at most ShmGroup::one_shot_bytes) are
/// one-shot; longer vectors pass through a pipeline:
/// 1. connect: find the peers' memory; only the first operations of a communicator wait here (ShmGroup).
/// 2. wait for the lane: all ranks have completed the lane's previous operation (LaneLedger).
/// 3. arrive: publish the call and, for a short vector, the data; wait for all peers, and compare the calls (Arrival).
/// 4. run: compute the result of a one-shot collective (OneShot), or take the steps of a pipeline (Pipeline).
///
/// Synchronisations: one for a one-shot collective. A pipeline has one more per slice and stage, and one at the end if
/// peers use this rank's buffers.
/// Memory traffic per rank in bytes, for an allreduce of N bytes among P ranks: one-shot N(P+3), including the rank's
/// own N bytes from the input; through staging memory 5N-2N/P; in windows 2N. Reductions associate as a balanced binary
/// tree over the ranks, so all three give bitwise equal results.
///
/// The operation owns its lane from construction to destruction. Arrival, OneShot and Pipeline document the lane's
/// contents, and when each rank may write there.
class ShmOperation final : public Operation {
 public:
  /// The whole collective, or only the comparison of the ranks' calls.
  enum class Purpose { kCollective, kComparison };
  /// @param prepared  outlives the operation; ranks in the call (root, counts) are local ranks
  /// @param number  grows from one operation to the next   @param has_arrived  true if the caller has already published
  /// this rank's arrival and data
  ShmOperation(const Group& group, ShmGroup& shm, const PreparedCall& prepared, std::uint64_t number, Purpose purpose,
               bool has_arrived = false);
  /// Keeps the lane for operation `number`, which the same collective will run after this operation.
  void set_followed_by(std::uint64_t number) { followed_by_ = number; }
  ~ShmOperation() override;
  ShmOperation(const ShmOperation&) = delete;
  ShmOperation& operator=(const ShmOperation&) = delete;

  /// @throws Mismatch  on all ranks, before data is touched
  State advance() override;
  std::vector<int> waits_for() const override;
  /// Blocks until no peer uses this rank's buffers, which takes at most a step of a peer.
  BufferHazard withdraw() override;

 private:
  enum class Phase { kConnect, kAwaitLane, kArrive, kDescribe, kRun, kDone };
  void arrive();

  const Group& group_;
  ShmGroup& shm_;
  const PreparedCall& prepared_;
  const bool has_arrived_;
  std::uint64_t followed_by_ = 0;  // 0: no operation
  Arrival arrival_;
  const std::uint64_t previous_;      // operation that all ranks must complete before this rank writes the lane
  std::vector<std::size_t> offsets_;  // in collectives with counts: the start of each rank's part
  // Exactly one is set for kCollective, none for kComparison.
  std::optional<OneShot> one_shot_;
  std::optional<Pipeline> pipeline_;
  Phase phase_ = Phase::kConnect;
};

}  // namespace farandole
