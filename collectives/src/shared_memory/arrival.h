// SPDX-License-Identifier: Apache-2.0
// Arrival: what a rank shows of its call before data is touched, and what it learns of its peers' calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/core/buffer.h"
#include "operation/call.h"
#include "operation/descriptor.h"
#include "operation/group.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// Publishes this rank's arrival, and whatever it has written for the operation before. `number` comes last (release),
/// and sequentially consistent, for the nudge.
inline void publish_arrival(ShmGroup& host, int lane, std::uint64_t number, std::uint64_t digest) {
  ArrivalRecord& mine = host.lane(host.rank(), lane).arrival;
  mine.digest.store(digest, std::memory_order_relaxed);
  mine.completed.store(host.completed(), std::memory_order_relaxed);
  mine.number.store(number, std::memory_order_seq_cst);
  host.nudge();
}
/// True once `local`, a peer, has arrived: this rank sees all that it wrote before (acquire).
inline bool has_arrived(ShmGroup& host, int lane, std::uint64_t number, int local) {
  const ArrivalRecord& record = host.lane(local, lane).arrival;
  if (record.number.load(std::memory_order_acquire) != number) return false;
  host.note_completed(local, record.completed.load(std::memory_order_relaxed));
  return true;
}

/// One rank's arrival in one operation, and its view of the peers'. In this order: this rank shows what they need of
/// its call, arrives, waits until all have, and knows then whether they called the same; if not, all describe their
/// calls.
///
/// Memory: a rank writes its own arrival record of the lane, and its counts into its first result slot; once all peers
/// have completed the lane's last operation, and not again before they have completed this one. They only read it.
/// Atomics: of a record, `number` and `described` are stored last (release) and read first (acquire); all other words
/// are relaxed. `number` shows the digest, where buffers are, and the counts; `described` the descriptor.
class Arrival {
 public:
  /// `number` is that of the operation. For a rank that has arrived already, by `publish_arrival`, `all_arrived` is
  /// what follows.
  Arrival(const Group& group, ShmGroup& host, const Descriptor& descriptor, std::uint64_t number);

  std::uint64_t number() const { return number_; }
  int lane() const { return lane_; }

  /// Where the peers can reach the buffers. @param input_is_whole  they can use the input as it is
  /// @returns whether they can reach the input
  bool show_buffers(ConstBufferView input, BufferView output, bool input_is_whole);
  /// Of a call that exchanges counts: elements to and from each rank.
  void show_counts(const Parts& sent, const Parts& expected);
  bool has_counts() const { return has_counts_; }
  void arrive() { publish_arrival(host_, lane_, number_, digest_); }

  bool all_arrived() {
    for (; cursor_ < host_.size(); ++cursor_) {
      if (cursor_ != host_.rank() && !has_arrived(host_, lane_, number_, cursor_)) return false;
    }
    cursor_ = 0;
    return true;
  }
  /// The peers that have not, as far as this rank knows; ranks of the job.
  std::vector<int> missing() const;

  // What follows needs that all have arrived.
  /// True if all ranks called the same, and it can work. All of them see the same digests, so find the same.
  bool is_alike() const {
    for (int local = 0; local < host_.size(); ++local) {
      if (record(local).digest.load(std::memory_order_relaxed) != digest_) return false;
    }
    return descriptor_.algorithm != Descriptor::kRefused;
  }
  void describe();
  bool all_described();
  /// Says which rank called what, once all have described it. @throws Mismatch, InvalidArgument
  [[noreturn]] void throw_difference() const;
  /// @throws Mismatch  a rank sends another number of elements than its peer expects
  void compare_counts() const;

  /// What a rank sends to each, or expects from each; of a call that exchanges counts.
  std::span<const std::uint64_t> sent_by(int local) const { return {counts(local), size()}; }
  std::span<const std::uint64_t> expected_by(int local) const { return {counts(local) + size(), size()}; }
  /// Where a rank's buffers are, for ShmGroup::reach, or ShmGroup::kUnreachable.
  std::uint64_t input_of(int local) const { return record(local).input().load(std::memory_order_relaxed); }
  std::uint64_t output_of(int local) const { return record(local).output().load(std::memory_order_relaxed); }
  /// Where the input is, for ShmGroup::copy_from, or ShmGroup::kUnreachable.
  std::uint64_t address_of(int local) const { return record(local).address().load(std::memory_order_relaxed); }

 private:
  ArrivalRecord& record(int local) const { return host_.lane(local, lane_).arrival; }
  std::uint64_t* counts(int local) const {
    return reinterpret_cast<std::uint64_t*>(host_.result_slot(local, lane_, 0));
  }
  std::size_t size() const { return static_cast<std::size_t>(host_.size()); }

  const Group& group_;
  ShmGroup& host_;
  const std::uint64_t number_;
  const int lane_;
  Descriptor descriptor_;
  const std::uint64_t digest_;
  bool has_counts_ = false;  // this rank has shown them; its peers have if they called the same
  int cursor_ = 0;           // ranks below it have arrived; then, have described their calls
};

}  // namespace farandole
