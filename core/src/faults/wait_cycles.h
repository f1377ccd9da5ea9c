// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other in a circle: crossed communicators.
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

/// Why ranks of a circle may go on all the same. Where several reasons hold, the greatest one is told.
enum class CycleDoubt : std::uint32_t {
  kNone,
  kRecent,          ///< a thread that has not used Farandole yet may come
  kSeveralThreads,  ///< another thread of the rank may go on
  kNotCompared,     ///< the rank's call may end before all ranks have entered it
};

/// A question that goes from a rank that waits to those that it waits for, from these to those that they wait for, and
/// so on, until it comes back to the rank that has asked. As processes send it to each other, in place of a text.
struct WaitProbe {
  static constexpr std::size_t kPathBytes = 1700;  // leaves room for the rest of a fault's text
  std::uint32_t origin = 0;                        ///< rank that has asked
  std::uint32_t number = 0;                        ///< of its question
  std::uint64_t origin_sequence = 0;               ///< what the origin waits for
  std::uint32_t origin_communicator = 0;
  CycleDoubt doubt = CycleDoubt::kNone;
  std::uint32_t doubtful = 0;  ///< the rank of the path that gives rise to it
  std::uint32_t hidden = 0;    ///< ranks that the path has no room for
  char path[kPathBytes] = {};  ///< who waits in what, for people
};

/// Looks for circles of ranks of which each waits for the next (Chandy, Misra and Haas, ACM TOCS 1(2), 1983: a probe
/// along the edges of the wait-for graph that comes back proves a deadlock).
///
/// A rank passes a probe on if it sleeps in a collective for FARANDOLE_WARN_AFTER and has not entered the collective
/// that the sender waits for. When the probe comes back and the origin still waits for the same, all ranks of the path
/// still do: the last of them can go on only after the origin has, and so on backwards. That holds for ranks of one
/// thread, and for collectives that need all ranks; for others a circle is possible, not certain. Whether a rank has a
/// thread that has not used Farandole yet is unknown: a circle is certain only after a multiple of that time.
/// Thread-safe.
class WaitCycles {
 public:
  /// How the process that has this object reaches ranks, and what it knows of them.
  struct Environment {
    std::function<BlockedCalls&(int rank)> blocked;                              ///< of a rank of this process
    std::function<std::uint64_t(int rank, std::uint32_t communicator)> entered;  ///< by a rank of this process
    /// Those of `members` that are known or supposed not to have entered the collective; not all, if there are many.
    std::function<std::vector<int>(std::uint32_t communicator, std::uint64_t sequence, const std::vector<int>& members)>
        missing;
    /// To `rank`, of another process, which a rank waits for in that collective.
    std::function<void(int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe&)> post;
    std::function<void(int rank, const std::string& text, bool is_certain)> found;
  };
  WaitCycles(const Topology& topology, int process, Seconds warn_after, Environment environment);

  /// A rank of this process waits for long: looks whether the ranks that it waits for wait for it.
  void search(int rank);
  /// A probe has come to `rank`, of this process, for which another rank waits in that collective.
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
  std::mutex mutex_;                                        // guards what follows
  std::map<std::pair<int, int>, std::uint32_t> passed_on_;  // (rank here, origin) → number of the last probe
};

}  // namespace farandole
