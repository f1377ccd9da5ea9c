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

/// Publishes this rank's arrival in operation `number`, together with everything that the rank has written for the
/// operation before. The store of `number` comes last, and is sequentially consistent because `wake_peers` follows.
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

/// One rank's arrival in one operation, and the arrivals of the peers as this rank sees them.
///
/// Protocol, for each rank:
/// 1. Write the digest (64 bits) of the call and the locations of the buffers to this rank's arrival record; in a
///    one-shot collective, the data instead of the locations. Then store the operation's number (release).
/// 2. Poll the record of each peer until that number appears (acquire).
/// 3. Compare the P digests. Every rank reads the same P digests, so all ranks draw the same conclusion.
/// 4. If the digests differ, or the call is refused: publish the whole descriptor (24 bytes), wait for the descriptors
///    of all ranks, and throw the same exception on every rank.
///
/// There is one round: a rank writes one cache line and reads P-1. No rank writes to an output before step 3. With
/// FARANDOLE_CHECK=off the caller skips steps 3 and 4.
///
/// Memory: a rank writes only its own arrival record of the lane and, if the call exchanges counts, its own first
/// result slot. Both may be written once all ranks have completed the lane's previous operation (LaneLedger).
///
/// Atomics: `number` publishes the digest, the locations and the counts; `described` publishes the descriptor. Both are
/// stored last (release) and read first (acquire); all other words are relaxed.
class Arrival {
 public:
  /// @param number  of the operation. If this rank has already arrived by `publish_arrival`, go on with `all_arrived`.
  Arrival(const Group& group, ShmGroup& shm, const Descriptor& descriptor, std::uint64_t number);

  std::uint64_t number() const { return number_; }
  int lane() const { return lane_; }

  /// Publishes where peers can reach the buffers. Call before `arrive`.
  /// @param shares_input  false if peers must not read the input in place, even where they can
  /// @returns  true if peers can read the input in place
  bool publish_buffers(ConstBufferView input, BufferView output, bool shares_input);
  /// Publishes how many elements this rank sends to and expects from each rank, in calls that exchange counts. Call
  /// before `arrive`.
  void publish_counts(const Parts& sent, const Parts& expected);
  bool has_counts() const { return has_counts_; }
  void arrive() { publish_arrival(shm_, lane_, number_, digest_); }

  /// True once all peers have arrived. Resumes at the first peer that had not.
  bool all_arrived() {
    for (; cursor_ < shm_.size(); ++cursor_) {
      if (cursor_ != shm_.rank() && !has_arrived(shm_, lane_, number_, cursor_)) return false;
    }
    cursor_ = 0;
    return true;
  }
  /// Ranks in the job of the peers that have not arrived, as far as this rank knows.
  std::vector<int> missing() const;

  // The functions below need that all ranks have arrived.

  /// True if all ranks made the same call, and no rank's validation has refused it. The same result on all ranks.
  bool calls_agree() const {
    for (int local = 0; local < shm_.size(); ++local) {
      if (record(local).digest.load(std::memory_order_relaxed) != digest_) return false;
    }
    return descriptor_.algorithm != Descriptor::kRefused;
  }
  /// Publishes the whole descriptor, after `calls_agree` was false.
  void publish_descriptor();
  /// True once all ranks have published their descriptors.
  bool all_described();
  /// Says which rank made which call, once `all_described`. @throws Mismatch, InvalidArgument
  [[noreturn]] void throw_difference() const;
  /// @throws Mismatch  a rank sends another number of elements than the receiver expects
  void compare_counts() const;

  /// Elements that `local` sends to each rank, or expects from each rank, in a call that exchanges counts.
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
  bool has_counts_ = false;  // this rank has published counts, and so have all peers if the calls agree
  int cursor_ = 0;           // lower local ranks have arrived; later, have published their descriptors
};

}  // namespace farandole
