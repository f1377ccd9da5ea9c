// SPDX-License-Identifier: Apache-2.0
// Admission of operations to the lanes of shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/sdk/transport.h"

namespace farandole {

/// Tracks operations that end in any order, and sums them up in one number: all operations up to `completed()` have
/// ended. Pure; LaneLedger publishes the number to the peers.
///
/// Operations have growing numbers, and each number has a lane. Operations begin in the order of their numbers. An
/// operation that must begin later is announced in that order, by an earlier `begin`.
class CompletionCount {
 public:
  /// All operations up to this number have ended.
  std::uint64_t completed() const { return completed_; }
  /// Marks `number` as in flight in `lane`. Call it again when an announced operation begins.
  /// @returns  the operation that last ended in the lane; 0 if the lane is new
  std::uint64_t begin(int lane, std::uint64_t number) {
    in_flight_[static_cast<std::size_t>(lane)] = number;
    newest_ = std::max(newest_, number);
    return last_[static_cast<std::size_t>(lane)];
  }
  /// Ends the operation in flight in `lane`. @param next  the operation that takes the lane over; 0 for none
  void end(int lane, std::uint64_t next) {
    last_[static_cast<std::size_t>(lane)] = in_flight_[static_cast<std::size_t>(lane)];
    replace(lane, next);
  }
  /// Removes the operation in flight in `lane`, which will never begin. It does not become the lane's last operation.
  void withdraw(int lane) { replace(lane, 0); }
  std::uint64_t in_flight(int lane) const { return in_flight_[static_cast<std::size_t>(lane)]; }

 private:
  void replace(int lane, std::uint64_t next) {
    in_flight_[static_cast<std::size_t>(lane)] = next;
    completed_ = newest_;
    for (const std::uint64_t number : in_flight_) {
      if (number != 0) completed_ = std::min(completed_, number - 1);
    }
  }

  std::array<std::uint64_t, kLanes> in_flight_{};  // by lane; 0 for none
  std::array<std::uint64_t, kLanes> last_{};       // by lane: the operation that ended last
  std::uint64_t completed_ = 0, newest_ = 0;
};

static_assert((kLanes & (kLanes - 1)) == 0);

/// Decides when an operation may write a lane. A lane is an arrival record and slots, which successive operations
/// reuse.
///
/// Operations inside a host have growing numbers, the same on all ranks. A collective with sequence number s owns the
/// numbers first_number(s) … first_number(s) + 15, which all share a lane. Successive collectives use the lanes in
/// turn, so as many operations as there are lanes can be in flight together. Rule: a rank writes a lane only after all
/// ranks have completed the lane's previous operation, because until then a peer may still read the lane.
///
///     const std::uint64_t previous = ledger.begin(lane, number);
///     // advance() returns kWaiting while ledger.first_behind(previous) >= 0
///     …                                       // arrive, run
///     ledger.end(lane);
///
/// Each rank publishes a completed number: all operations up to this number have ended on the rank. The number travels
/// in the arrival records, which peers read anyway (`note_completed`). If these are too old, `first_behind` reads the
/// peers' `ShmBlock::completed`.
///
/// Not thread-safe: the work queue's lock guards it.
class LaneLedger {
 public:
  /// Operation numbers of one collective.
  static constexpr std::uint64_t kNumbersPerCollective = 16;
  static constexpr std::uint64_t first_number(std::uint64_t sequence) { return kNumbersPerCollective * sequence; }

  /// @param lanes  a power of two
  LaneLedger(int size, int rank, int lanes)
      : rank_(rank), last_lane_(static_cast<std::uint64_t>(lanes) - 1), ranks_(static_cast<std::size_t>(size)) {}
  /// Sets the word in which `local` publishes its completed number. Call for all ranks before the first operation.
  void attach(int local, std::atomic<std::uint64_t>& completed) {
    ranks_[static_cast<std::size_t>(local)].word = &completed;
  }

  /// Number of operations that can be in flight together. 2 if all ranks share memory: enough to keep a rank busy, and
  /// the staging memory stays in the caches. kLanes, as for messages, if collectives also wait for other hosts.
  int lanes() const { return static_cast<int>(last_lane_) + 1; }
  int lane_of(std::uint64_t number) const { return static_cast<int>(number / kNumbersPerCollective & last_lane_); }

  /// Begins operation `number` in `lane`. Call in the order of numbers; an announced operation may begin later.
  /// @returns  the operation that all ranks must have completed before this rank writes the lane, for `first_behind`
  std::uint64_t begin(int lane, std::uint64_t number) { return completion_.begin(lane, number); }
  /// Reserves the lane of operation `number`, which may begin even after later operations have ended. Without the
  /// announcement the end of a later operation would count operation `number` as completed, and peers would reuse the
  /// lane.
  void announce(std::uint64_t number) { (void)begin(lane_of(number), number); }
  /// Clears the lane of the collective that owns `number`. Call once the collective has ended or was given up, so that
  /// an announced operation will never begin. No-op if no operation of that collective is in the lane.
  void withdraw(std::uint64_t number);
  /// Ends the operation in `lane`, and publishes this rank's completed number.
  /// @param next  the operation that follows in this lane as part of the same collective; 0 for none
  void end(int lane, std::uint64_t next = 0);

  /// This rank has completed all operations up to this number.
  std::uint64_t completed() const { return completion_.completed(); }
  /// The first peer (local rank) that has not completed operation `number`; -1 if all peers have.
  int first_behind(std::uint64_t number);
  /// Records that `local` has completed all operations up to `completed`, read from the peer's arrival record.
  void note_completed(int local, std::uint64_t completed) {
    std::uint64_t& known = ranks_[static_cast<std::size_t>(local)].known;
    if (completed > known) known = completed;
  }

 private:
  struct Rank {
    std::atomic<std::uint64_t>* word = nullptr;  // ShmBlock::completed; null until ShmGroup finds the block
    std::uint64_t known = 0;                     // value that this rank last read
  };
  void publish_completed() const;

  const int rank_;
  const std::uint64_t last_lane_;
  std::vector<Rank> ranks_;  // by local rank
  CompletionCount completion_;
};

}  // namespace farandole
