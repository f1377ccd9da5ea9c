// SPDX-License-Identifier: Apache-2.0
// Progress of ranks in collectives, to find the ranks that a collective waits for.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/internal/blocked_calls.h"

namespace farandole FARANDOLE_API {

class Job;

/// Progress of ranks in collectives, reached as `endpoint.late_ranks()`. A rank publishes each collective that it
/// enters; a rank that has waited for long asks its peers, and describes the missing ranks in a warning or an error.
/// Thread-safe.
class LateRanks {
 public:
  LateRanks(Job& job, int rank);

  /// Publishes that this rank has entered collective `sequence` of `communicator`.
  void enter(std::uint16_t communicator, std::uint64_t sequence) {
    entered_[communicator].store(sequence, std::memory_order_relaxed);
  }
  /// Sequence number of the collective of `communicator` that this rank has entered last; 0 for an invalid id.
  std::uint64_t entered(std::uint32_t communicator) const;
  /// Asks at most 16 other processes how far their ranks are: first the processes of `awaited`, the ranks that
  /// collective `sequence` waits for; then the processes of ranks that earlier answers name; then the processes of
  /// `others`. Answers arrive through `EndpointFaults::poll`.
  void ask(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> awaited,
           std::span<const int> others);
  /// Describes the ranks of `members` that have not entered `sequence`; empty if all ranks have entered it.
  std::string describe_missing(std::uint16_t communicator, std::uint64_t sequence, std::span<const int> members) const;

  /// The collectives in which threads of this rank are blocked.
  BlockedCalls& blocked() { return blocked_; }
  /// Call when this rank has waited for long: finds out whether the awaited ranks wait for this rank. If so, poisons
  /// the job with a Mismatch that describes the cycle, or warns if the cycle may still resolve. Answers arrive through
  /// `EndpointFaults::poll`.
  void search_cycle();

  /// Publishes whether this rank has entered its last collective. Ranks that wait in vain for a rank that has left
  /// raise PeerLost.
  void set_left(bool left);
  /// True if `rank` left at least `ago` ago: long enough for its last messages to have arrived.
  bool has_left(int rank, Seconds ago) const;

 private:
  Job& job_;
  const int rank_;
  BlockedCalls blocked_;
  std::vector<std::atomic<std::uint64_t>> entered_;  // by communicator id; written by this rank, read by any thread
};

}  // namespace FARANDOLE_API
