// SPDX-License-Identifier: Apache-2.0
// Which ranks a collective waits for: what this process asks other processes, and what they answered.
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

/// Asks few: the processes of the ranks that a stalled collective waits for, then those that these name as missing,
/// then others, kMaxAsked in all, and none that has not answered yet. So a question of all P ranks of a job costs at
/// most kMaxAsked P messages and as many answers, and a process that computes for long finds one question of each
/// other. Thread-safe.
class StragglerQueries {
 public:
  static constexpr std::size_t kMaxAsked = 16;
  /// How many ranks a process that is asked names as missing.
  static constexpr std::size_t kMaxNamed = 4;

  /// How far a rank of this process is in a communicator.
  using Entered = std::function<std::uint64_t(int rank, std::uint32_t communicator)>;
  StragglerQueries(const Topology& topology, int process, Entered entered);

  /// The processes to be sent a question about `communicator`, whose collective `sequence` is stalled.
  /// @param awaited  ranks that the asking rank waits for   @param others  ranks to be asked if there is room
  std::vector<int> ask(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> awaited,
                       std::span<const int> others);
  /// How far a rank of this process is.
  std::uint64_t entered(int rank, std::uint32_t communicator) const { return entered_(rank, communicator); }
  /// `rank` has entered `sequence`: an answer.
  void answered(int rank, std::uint32_t communicator, std::uint64_t sequence);
  /// A process that was asked names `rank` as missing.
  void named(int rank, std::uint32_t communicator);
  /// Ranks that this process has found missing, at most kMaxNamed.
  std::vector<int> missing(std::uint32_t communicator) const;
  /// Ranks of `members` that are missing in `sequence`, at most kMaxAsked: first those that are known to be, then
  /// those that peers name, then those that were asked and have not answered. Ranks of which nothing is known are left
  /// out.
  std::vector<int> missing(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> members) const;
  /// Describes the ranks of `members` that have not entered `sequence`; empty if all have.
  std::string describe_missing(std::uint32_t communicator, std::uint64_t sequence, std::span<const int> members) const;

  /// Whether the rank has entered its last collective.
  void set_left(int rank, bool left);
  /// All ranks of that process have; an answer, too.
  void process_has_left(int process);
  bool has_left(int rank, Seconds ago) const;

 private:
  /// What is asked about a communicator.
  struct Question {
    std::uint64_t sequence = 0;
    std::set<int> ranks;           // that were asked about `sequence`
    std::set<int> named;           // as missing
    std::set<int> open_processes;  // that have not answered; longer than `sequence` is stalled, maybe
  };
  bool is_here(int rank) const { return topology_.rank(rank).process == process_; }
  std::optional<std::uint64_t> progress_of(int rank, std::uint32_t communicator) const;
  bool is_missing(int rank, std::uint32_t communicator, std::uint64_t sequence) const;

  const Topology& topology_;
  const int process_;
  const Entered entered_;
  mutable std::mutex mutex_;                                        // guards what follows
  std::map<std::uint32_t, Question> questions_;                     // by communicator
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> answers_;  // (rank, communicator) → entered
  std::vector<std::optional<Clock::time_point>> left_;              // by rank
};

}  // namespace farandole
