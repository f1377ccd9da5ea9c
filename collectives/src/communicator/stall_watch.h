// SPDX-License-Identifier: Apache-2.0
// Watches collectives that make no progress, and knows how far the other ranks of the communicator are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "communicator/work_state.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"

namespace farandole {

/// Watches the oldest pending collective of one communicator: asks the ranks that the collective waits for how far they
/// are, warns after FARANDOLE_WARN_AFTER, and ends the collective at FARANDOLE_TIMEOUT or when a rank that it waits for
/// has left the job. The queue's mutex guards all functions.
class StallWatch {
 public:
  /// @param group, label  outlive this object   @param label  text of the communicator for messages
  StallWatch(const Group& group, const std::string& label) : group_(group), label_(label) {}

  /// Notes that `work` is advanced for the first time.
  static void begin(Work::State& work, Clock::time_point now);
  /// Notes that `work` has made progress. @param oldest_started  start of the oldest pending collective
  void note_progress(Work::State& work, Clock::time_point oldest_started, Clock::time_point now);
  /// Counts the time since the last check as waiting time, although no thread checked: the program was outside of
  /// calls.
  void count_gap(Clock::time_point now) { monitor_.count_gap(now); }
  /// Asks and warns as time requires. @param oldest  pending collective, which has begun
  /// @returns  the failure that ends the collective, if its time is over
  std::optional<Failure> check(Work::State& oldest, Clock::time_point now);
  /// Text with the ranks that have not begun `work`, as far as is known; empty if all ranks have.
  std::string describe_missing(const Work::State& work) const;
  /// True if a peer has begun collective `sequence`, which this rank has not begun. Non-blocking.
  bool has_peer_started(const ShmContext& host, std::uint64_t sequence) const;

 private:
  /// Sends the question how far they are to the ranks whose messages `work` waits for. @param all  and to all others
  void ask(Work::State& work, Clock::time_point now, bool all) const;
  /// True if a rank whose messages `work` waits for has shut down cleanly, and its last messages have had time to
  /// arrive.
  bool waits_for_rank_that_left(const Work::State& work) const;
  std::string describe_stall(const Work::State& work, Clock::time_point now) const;

  const Group& group_;
  const std::string& label_;
  StallMonitor monitor_{group_.endpoint->settings().faults.warn_after, group_.endpoint->settings().faults.timeout};
};

}  // namespace farandole
