// SPDX-License-Identifier: Apache-2.0
// Arrival: the barrier at the start of an operation in shared memory, which also compares the ranks' calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/core/buffer.h"
#include "operation/call.h"
#include "operation/group.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// Publishes this rank's arrival in operation `number`, and with it everything that the rank has written for the
/// operation so far. Stores `number` last; that store is sequentially consistent because `wake_peers` follows.
inline void publish_arrival(ShmGroup& shm, int lane, std::uint64_t number, std::uint64_t digest) {
  ArrivalRecord& mine = shm.layout().lane(shm.rank(), lane).arrival;
  mine.digest.store(digest, std::memory_order_relaxed);
  mine.completed.store(shm.ledger().completed(), std::memory_order_relaxed);
  mine.number.store(number, std::memory_order_seq_cst);
  shm.wake_peers();
}
/// True once the peer `local` has arrived in operation `number`. This rank then sees everything that the peer wrote
/// before arriving (acquire).
inline bool has_arrived(ShmGroup& shm, int lane, std::uint64_t number, int local) {
  const ArrivalRecord& record = shm.layout().lane(local, lane).arrival;
  if (record.number.load(std::memory_order_acquire) != number) return false;
  shm.ledger().note_completed(local, record.completed.load(std::memory_order_relaxed));
  return true;
}

/// One rank's arrival in one operation; also observes the arrivals of the peers.
///
/// Protocol, for each rank:
/// 1. Write the call's digest (64 bits) and the buffers' locations to this rank's arrival record. A one-shot collective
///    writes its data instead of the locations. Then store the operation's number (release).
/// 2. Poll each peer's record until that number appears (acquire).
/// 3. Compare the P digests. Every rank reads the same P digests, so all ranks draw the same conclusion.
/// 4. If the digests differ, or validation has refused the call: publish the whole descriptor (24 bytes), wait for all
///    ranks' descriptors, and throw the same exception on every rank.
///
/// Costs one synchronisation: a rank writes one cache line and reads P-1. No rank writes to an output before step 3.
/// With FARANDOLE_CHECK=off the caller skips steps 3 and 4.
///
/// Memory: a rank writes only its own arrival record of the lane and, if the call exchanges counts, its own first
/// result slot. Both may be written once all ranks have completed the lane's previous operation (LaneLedger).
///
/// Atomics: `number` publishes the digest, the locations and the counts; `described` publishes the descriptor. Ranks
/// store both last (release) and read both first (acquire); all other words are relaxed.
class Arrival {
 public:
  /// If this rank has already arrived by `publish_arrival`, go on with `all_arrived`. @param number  of the operation
  Arrival(const Group& group, ShmGroup& shm, const Descriptor& descriptor, std::uint64_t number);

  std::uint64_t number() const { return number_; }
  int lane() const { return lane_; }

  /// Publishes the locations at which peers can reach the buffers. Call before `arrive`.
  /// @param shares_input  false if peers must not read the input in place, even where they can
  /// @returns  true if peers can read the input in place
  bool publish_buffers(ConstBufferView input, BufferView output, bool shares_input);
  /// Publishes the numbers of elements that this rank sends to each rank and expects from each rank. For calls that
  /// exchange counts only. Call before `arrive`.
  void publish_counts(const Parts& sent, const Parts& expected);
  bool has_counts() const { return has_counts_; }
  void arrive() { publish_arrival(shm_, lane_, number_, digest_); }

  /// True once all peers have arrived. Continues at the first peer that had not arrived at the last call.
  bool all_arrived() {
    for (; cursor_ < shm_.size(); ++cursor_) {
      if (cursor_ != shm_.rank() && !has_arrived(shm_, lane_, number_, cursor_)) return false;
    }
    cursor_ = 0;
    return true;
  }
  /// Peers that this rank has not seen arrive, as ranks of the job.
  std::vector<int> missing() const;

  // Call the functions below only after all ranks have arrived.

  /// True if all ranks made the same call, and validation has not refused it. The same result on all ranks.
  bool calls_agree() const {
    for (int local = 0; local < shm_.size(); ++local) {
      if (record(local).digest.load(std::memory_order_relaxed) != digest_) return false;
    }
    return descriptor_.algorithm != Descriptor::kRefused;
  }
  /// Publishes the whole descriptor. Call if `calls_agree` is false.
  void publish_descriptor();
  /// True once all ranks have published their descriptors.
  bool all_described();
  /// Throws the Mismatch that names two ranks and their calls, or, if the calls are the same, the refused call. Call
  /// once `all_described`.
  [[noreturn]] void throw_difference() const;
  /// @throws Mismatch  a rank sends a different number of elements than the receiver expects
  void compare_counts() const;

  /// Numbers of elements that `local` sends to each rank, or expects from each rank, in a call that exchanges counts.
  std::span<const std::uint64_t> sent_by(int local) const { return {counts(local), size()}; }
  std::span<const std::uint64_t> expected_by(int local) const { return {counts(local) + size(), size()}; }
  /// Locations of a rank's buffers for PeerBuffers::resolve, or PeerBuffers::kUnreachable.
  std::uint64_t input_of(int local) const { return record(local).input().load(std::memory_order_relaxed); }
  std::uint64_t output_of(int local) const { return record(local).output().load(std::memory_order_relaxed); }
  /// Address of a rank's input for PeerBuffers::copy_from, or PeerBuffers::kUnreachable.
  std::uint64_t address_of(int local) const { return record(local).address().load(std::memory_order_relaxed); }

 private:
  ArrivalRecord& record(int local) const { return shm_.layout().lane(local, lane_).arrival; }
  std::uint64_t* counts(int local) const {
    return reinterpret_cast<std::uint64_t*>(shm_.layout().result_slot(local, lane_, 0));
  }
  std::size_t size() const { return static_cast<std::size_t>(shm_.size()); }

  const Group& group_;
  ShmGroup& shm_;
  const std::uint64_t number_;
  const int lane_;
  Descriptor descriptor_;
  const std::uint64_t digest_;
  bool has_counts_ = false;  // this rank has published counts; if the calls agree, all peers have
  int cursor_ = 0;           // lower local ranks have arrived; in all_described, have published descriptors
};

}  // namespace farandole
