// SPDX-License-Identifier: Apache-2.0
// Health checks while the engine waits: lost peers, stalled requests, idleness of this rank.
#pragma once

#include <cstdint>

#include "farandole/internal/deadline.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/stall_monitor.h"
#include "idle_detector.h"
#include "process_sets.h"

namespace farandole {

/// Runs the checks only on threads that are about to sleep, so the checks cost nothing while requests complete quickly.
/// TensorEngine::drive_mutex_ guards the members; `poll_peers` needs no lock, because it uses only constant members.
class EngineHealth {
 public:
  /// @param rank  for messages   @param endpoint  must outlive this
  EngineHealth(int rank, Endpoint& endpoint);

  /// Poisons the job if a peer is gone. Thread-safe.
  void poll_peers();
  /// Warns of requests that have waited longer than FARANDOLE_WARN_AFTER, poisons the job if one has waited longer than
  /// FARANDOLE_TIMEOUT, and announces in `sets` that this rank has become idle. @param progress  see IdleDetector
  void check(ProcessSets& sets, std::uint64_t progress, Clock::time_point now);
  /// True if this rank is idle and the engine has made no progress since.
  bool is_idle(std::uint64_t progress) const { return idle_.is_idle(progress); }

 private:
  void check_stall(const ProcessSets& sets, Clock::time_point now);
  void check_idle(ProcessSets& sets, std::uint64_t progress, Clock::time_point now);

  Endpoint& endpoint_;
  const int rank_;
  StallMonitor stall_;  // watches the request that has waited longest
  IdleDetector idle_;
};

}  // namespace farandole
