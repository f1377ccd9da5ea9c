// SPDX-License-Identifier: Apache-2.0
// Deadlock detection: finds cycles of ranks that wait for each other in crossed communicators.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/core/topology.h"
#include "farandole/internal/blocked_calls.h"

namespace farandole {

/// Reason why a cycle may still resolve. If several reasons hold, the greatest value is reported.
enum class CycleDoubt : std::uint32_t {
  kNone,
  kRecent,          ///< a thread that has not used Farandole yet may enter the collective
  kSeveralThreads,  ///< another thread of the rank may enter the collective
  kNotCompared,     ///< the rank's collective may complete before all ranks have entered it
};

/// Probe message, sent along the edges of the wait-for graph: from a waiting rank to the ranks that it waits for, from
/// these to the ranks that they wait for, and so on, until the probe returns to its origin. Sent in
/// `ControlMessage::text`.
struct WaitProbe {
  static constexpr std::size_t kPathBytes = 1700;  // leaves room for the rest of a fault's text
  std::uint32_t origin = 0;                        ///< rank that searches
  std::uint32_t number = 0;                        ///< of the search, within the origin's process
  std::uint64_t origin_sequence = 0;               ///< collective in which the origin waits
  std::uint32_t origin_communicator = 0;
  CycleDoubt doubt = CycleDoubt::kNone;
  std::uint32_t doubtful = 0;  ///< rank of the path for which `doubt` holds
  std::uint32_t hidden = 0;    ///< number of ranks that do not fit into `path`
  char path[kPathBytes] = {};  ///< description of the path: which rank waits in which collective
};

/// Detects deadlocks: cycles of ranks in which each rank waits for the next. Source: Chandy, Misra and Haas, ACM TOCS
/// 1(2), 1983: a probe that is passed along the edges of the wait-for graph and returns to its origin proves a
/// deadlock.
///
/// A rank passes a probe on if the rank has been blocked in a collective for most of FARANDOLE_WARN_AFTER, and has not
/// entered the collective in which the probe's sender waits. If the probe returns while the origin still waits in the
/// same collective, all ranks of the path still wait: the last rank of the path can proceed only after the origin has
/// proceeded, and so on backwards. This proof holds for ranks with a single thread, and for collectives that need all
/// ranks; otherwise a cycle is possible, not certain. Because a rank may have a thread that has not used Farandole yet,
/// a cycle is certain only after a multiple of FARANDOLE_WARN_AFTER. Thread-safe.
class WaitCycles {
 public:
  /// Access to the state of ranks, and to messages.
  struct Environment {
    std::function<BlockedCalls&(int rank)> blocked;                              ///< for ranks of this process
    std::function<std::uint64_t(int rank, std::uint32_t communicator)> entered;  ///< for ranks of this process
    /// Returns ranks of `members` that have not entered the collective, or may not have entered it; some of these ranks
    /// if there are many.
    std::function<std::vector<int>(std::uint32_t communicator, std::uint64_t sequence, const std::vector<int>& members)>
        missing;
    /// Sends the probe to `rank` of another process, which the sender awaits in that collective.
    std::function<void(int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe&)> post;
    /// Reports a cycle that `rank`, the origin, has found.
    std::function<void(int rank, const std::string& text, bool is_certain)> found;
  };
  WaitCycles(const Topology& topology, int process, Seconds warn_after, Environment environment);

  /// Starts a search by a rank of this process that has waited for long.
  void search(int rank);
  /// Handles a probe for `rank` of this process, which the sender awaits in that collective.
  void receive(int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe& probe);

 private:
  bool is_first_time(int rank, const WaitProbe& probe);
  void pass_on(int rank, WaitProbe probe);
  static std::string describe(const WaitProbe& probe);

  const Topology& topology_;
  const int process_;
  const Seconds warn_after_;
  const Environment environment_;
  std::atomic<std::uint32_t> next_number_{1};
  std::mutex mutex_;                                        // guards the members below
  std::map<std::pair<int, int>, std::uint32_t> passed_on_;  // (rank here, origin) → number of the last probe
};

}  // namespace farandole
