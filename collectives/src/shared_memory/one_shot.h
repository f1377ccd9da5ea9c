// SPDX-License-Identifier: Apache-2.0
// One-shot collectives on short vectors: the data travel with the arrival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "operation/call.h"
#include "operation/short_collective.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// One rank's work in a one-shot collective. The caller does the waiting.
///
/// Protocol: every rank publishes the data that the peers need (`publish_input`), and arrives. Once all have arrived,
/// every rank reads the peers' data and computes its own result (`compute_result`). So an allreduce of N bytes takes a
/// single synchronisation; each rank copies N bytes, and reads N bytes from each of P ranks. No rank waits at the end:
/// the lane's next operation checks that all peers have completed this one (LaneLedger) before it overwrites published
/// data.
///
/// A rank reads its own data from the caller's input: that is in its own caches, while peers fetch the cache lines of
/// the published copy. If the output overlaps the input, or the input is scaled, the rank reads the published copy.
///
/// Memory: the data go to the payload of the rank's arrival record if they fit (40 bytes), otherwise to the rank's
/// first input slot. The rank writes the data before it arrives, and the peers read them afterwards.
///
/// Atomics: the arrival's release and acquire also order the data (`publish_arrival`, `has_arrived`); there are no
/// others.
class OneShot {
 public:
  /// @param prepared  the whole vector fits in a slot; its call outlives this object
  /// @param offsets  the start of each rank's part in the whole vector, and the end; empty if parts are equal
  OneShot(ShmGroup& shm, int lane, const PreparedCall& prepared, std::span<const std::size_t> offsets = {});
  /// Publishes the data that peers need. Call before this rank arrives.
  void publish_input();
  /// Writes the result to the call's output. Call after all ranks have arrived.
  void compute_result();

 private:
  bool fits_record(std::size_t count) const { return collective_.bytes(count) <= sizeof(ArrivalRecord::payload); }
  std::byte* slot(int local) const { return shm_.layout().input_slot(local, lane_, 0); }
  ArrivalRecord& arrival(int local) const { return shm_.layout().lane(local, lane_).arrival; }

  ShmGroup& shm_;
  const int lane_;
  const ShortCollective collective_;
};

enum class Attempt {
  kDone,
  kPublished,  ///< peers see this rank's arrival, but there is no result yet
  kNotBegun,   ///< nothing has happened
};
/// Tries to run operation `number` of a call with equal parts on the caller's stack: arrives, and waits for the peers
/// until `waiter` would sleep. This is the fastest path of a blocking call on a short vector: no operation object, no
/// allocation, no virtual call. If the peers take longer, or the ranks' calls differ, a ShmOperation of the same number
/// must finish the work. Never throws.
Attempt try_one_shot(ShmGroup& shm, std::uint64_t number, const PreparedCall& prepared, Waiter& waiter);

}  // namespace farandole
