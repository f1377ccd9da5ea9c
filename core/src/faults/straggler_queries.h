// SPDX-License-Identifier: Apache-2.0
// Queries about late ranks: which processes to ask how far their ranks are, and the answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/settings.h"
#include "farandole/core/topology.h"
#include "farandole/internal/deadline.h"

namespace farandole {

/// Records what this process knows about late ranks of all processes, and chooses the processes to ask.
///
/// To bound the number of messages, a rank asks at most kMaxAsked processes about a stalled collective: first the
/// processes of the ranks that the collective waits for, then the processes of ranks that answers name as missing, then
/// other processes. A process that has not answered yet is not asked again. If all P ranks of a job ask, that costs at
/// most kMaxAsked P queries and as many answers, and a process that computes for long finds at most one query from each
/// other process. Thread-safe.
class StragglerQueries {
 public:
  static constexpr std::size_t kMaxAsked = 16;
  /// Maximum number of missing ranks in an answer.
  static constexpr std::size_t kMaxNamed = 4;

  /// Returns the sequence number of the collective that a rank of this process has entered last in a communicator.
  using Entered = std::function<std::uint64_t(int rank, std::uint32_t communicator)>;
  StragglerQueries(const Topology& topology, int process, Entered entered);

  /// Returns the processes to which the caller must send a query about `communicator`, whose collective `sequence` is
  /// stalled.
  /// @param awaited  ranks that the asking rank waits for   @param others  ranks to be asked if the limit permits
  std::vector<int> ask(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                       std::span<const int> others);
  /// Sequence number that a rank of this process has entered last.
  std::uint64_t entered(int rank, std::uint32_t communicator) const { return entered_(rank, communicator); }
  /// Notes an answer: `rank` has entered `sequence`.
  void answered(int rank, std::uint32_t communicator, std::uint64_t sequence);
  /// Notes an answer: another process waits for `rank`.
  void named(int rank, std::uint32_t communicator);
  /// Ranks about which this process has asked and that have not entered the stalled collective, at most kMaxNamed.
  std::vector<int> missing(std::uint32_t communicator) const;
  /// Ranks of `members` that are missing in collective `sequence`, at most kMaxAsked, in this order: ranks known to be
  /// missing, ranks that peers name, ranks that were asked and have not answered. Ranks of unknown state are left out.
  std::vector<int> missing(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> members) const;
  /// Describes the ranks of `members` that have not entered `sequence`; empty if all ranks have entered it.
  std::string describe_missing(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> members) const;

  /// Notes whether the rank has entered its last collective.
  void set_has_left(int rank, bool left);
  /// Notes that all ranks of the process have entered their last collective; counts as the process's answer.
  void process_has_left(int process);
  /// True if the rank left at least `ago` ago.
  bool has_left(int rank, Seconds ago) const;

 private:
  /// State of the queries about a communicator.
  struct Question {
    std::uint64_t sequence = 0;
    std::set<int> ranks;           // asked about `sequence`
    std::set<int> named;           // named as missing by peers
    std::set<int> open_processes;  // have not answered a query, perhaps about an earlier `sequence`
  };
  bool is_here(int rank) const { return topology_.rank(rank).process == process_; }
  std::optional<std::uint64_t> progress_of(int rank, std::uint32_t communicator) const;
  bool is_missing(int rank, std::uint32_t communicator, std::uint64_t sequence) const;

  const Topology& topology_;
  const int process_;
  const Entered entered_;
  mutable std::mutex mutex_;                                        // guards the members below
  std::map<std::uint32_t, Question> questions_;                     // by communicator
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> answers_;  // (rank, communicator) → entered
  std::vector<std::optional<Clock::time_point>> left_;              // by rank: when the rank left, if it has
};

}  // namespace farandole
