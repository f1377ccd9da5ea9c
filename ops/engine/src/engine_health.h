// SPDX-License-Identifier: Apache-2.0
// What an engine looks at while it waits: peers that are gone, requests that wait for long, and whether the rank stands
// still.
#pragma once

#include <cstdint>

#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/stall_monitor.h"
#include "idle_detector.h"
#include "process_sets.h"

namespace farandole {

/// TensorEngine::drive_mutex_ guards the members; `poll_peers` uses none that change. For threads that would sleep: an
/// engine whose requests are done in time calls none of this.
class EngineHealth {
 public:
  /// @param rank  for messages   @param endpoint  outlives this
  EngineHealth(int rank, Endpoint& endpoint);

  /// Poisons the job if a peer is gone. Thread-safe.
  void poll_peers();
  /// Warns of what waits for long, poisons the job where that is an error, and says to its peers that the rank has come
  /// to stand still. @param happened  see IdleDetector::look
  void check(ProcessSets& sets, std::uint64_t happened, Clock::time_point now);
  /// The rank stands still, and nothing has happened since it was found.
  bool stands_still(std::uint64_t happened) const { return idle_.holds(happened); }

 private:
  void check_stall(const ProcessSets& sets, Clock::time_point now);
  void check_idle(ProcessSets& sets, std::uint64_t happened, Clock::time_point now);

  Endpoint& endpoint_;
  const int rank_;
  StallMonitor stall_;  // of what has waited for the longest time
  IdleDetector idle_;
};

}  // namespace farandole
