// SPDX-License-Identifier: Apache-2.0
// Collectives on short vectors: a rank's data come with its arrival, and no rank answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "operation/call.h"
#include "operation/short_collective.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// One rank's side of a one-shot collective. Every rank shows what its peers need of it, and arrives. Once all have
/// arrived each takes what it needs. It reads its own data in its input, which its own caches hold alone, while its
/// peers fetch the lines of what it shows; a reduction whose output lies across the input, or whose input is scaled,
/// reads what the rank has shown.
///
/// Memory: the payload of the own arrival record, if the data fit it, else the own first input slot. A rank writes them
/// before it arrives, and its peers read them after; it writes them again once all peers have completed the operation.
/// Atomics: none but the arrival's, whose release and acquire order the data, too (`publish_arrival`, `has_arrived`).
class OneShot {
 public:
  /// @param call  its whole vector fits a slot; outlives this object
  /// @param firsts  where the part of each rank begins in the whole vector, and the end; empty: parts are equal
  OneShot(ShmGroup& host, int lane, const Call& call, std::span<const std::size_t> firsts = {});
  /// Before this rank arrives.
  void show();
  /// After all have arrived.
  void take();

 private:
  /// Whether so many elements are shown in the record.
  bool fits_record(std::size_t count) const { return collective_.bytes(count) <= sizeof(ArrivalRecord::payload); }
  std::byte* slot(int local) const { return host_.input_slot(local, lane_, 0); }
  ArrivalRecord& arrival(int local) const { return host_.lane(local, lane_).arrival; }

  ShmGroup& host_;
  const int lane_;
  const ShortCollective collective_;
};

enum class Attempt {
  kDone,
  kArrived,   ///< the peers see this rank's arrival, but the result is not there
  kNotBegun,  ///< nothing has happened
};
/// A first attempt at operation `number` of a call with equal parts: arrives, and waits for the peers as long as
/// `waiter` does not have to sleep. If it takes longer, or ranks called different things, a ShmOperation of the same
/// number takes over. Never throws.
Attempt try_one_shot(ShmGroup& host, std::uint64_t number, std::uint64_t digest, const Call& call, Waiter& waiter);

}  // namespace farandole
