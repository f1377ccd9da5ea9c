// SPDX-License-Identifier: Apache-2.0
// Watches collectives that make no progress, and finds out how far the other ranks of the communicator are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "communicator/collective_work.h"
#include "farandole/internal/stall_monitor.h"
#include "operation/group.h"

namespace farandole {

/// Watches the oldest pending collective of one communicator. Queries the progress of the ranks that the
/// collective awaits, and warns after FARANDOLE_WARN_AFTER. Ends the collective at FARANDOLE_TIMEOUT, or once an
/// awaited rank has left the job. The queue's mutex guards all functions.
class StallWatch {
 public:
  /// @param group, label  outlive this object   @param label  name of the communicator in messages
  StallWatch(const Group& group, const std::string& label) : group_(group), label_(label) {}

  /// Notes that `work` is advanced for the first time.
  static void begin(CollectiveWork& work, Clock::time_point now);
  /// Notes that `work` has made progress. @param oldest_started  start of the oldest pending collective
  void note_progress(CollectiveWork& work, Clock::time_point oldest_started, Clock::time_point now);
  /// Counts the time since the last check as waiting time. Without this call, the monitor would mistake time in
  /// the program's own code for time in which the process was stopped.
  void count_gap(Clock::time_point now) { monitor_.count_gap(now); }
  /// Asks, warns or fails, if it is time to. @param oldest  the oldest pending collective, which has begun
  /// @returns  the failure that ends the collective, if any: Timeout, or PeerLost if an awaited rank has left
  std::optional<Failure> check(CollectiveWork& oldest, Clock::time_point now);
  /// Text that lists the ranks known to have not begun `work`; empty if all ranks have begun.
  std::string describe_missing(const CollectiveWork& work) const;
  /// True if a peer has begun collective `sequence`, which this rank has not begun. Non-blocking.
  bool has_peer_started(const ShmContext& host, std::uint64_t sequence) const;

 private:
  /// Queries the progress of the ranks whose messages `work` awaits. @param all  query all other ranks, too
  void ask(CollectiveWork& work, Clock::time_point now, bool all) const;
  /// True if a rank whose messages `work` waits for has shut down cleanly, and its last messages have had time to
  /// arrive.
  bool waits_for_rank_that_left(const CollectiveWork& work) const;
  std::string describe_stall(const CollectiveWork& work, Clock::time_point now) const;

  const Group& group_;
  const std::string& label_;
  StallMonitor monitor_ = group_.stall_monitor();
};

}  // namespace farandole
