// SPDX-License-Identifier: Apache-2.0
// Schedules prepared for the executor, and a cache of them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "schedule/recently_used.h"
#include "schedule/stream_program.h"

namespace farandole {

/// A schedule with its dependencies reversed: for each step, the steps that wait for it. Const after construction.
struct PreparedSchedule {
  explicit PreparedSchedule(Schedule made);

  Schedule schedule;
  /// By step: number of dependencies, which are unmet at the beginning. Counts completions (`after`) and the start
  /// (`posted_after`).
  std::vector<int> waits;
  std::vector<std::vector<int>> on_complete;  ///< by step: steps that wait for its completion
  int first_written = 0, end_written = 0;     ///< smallest range of the result's pieces that holds all written pieces
  std::vector<int> on_start;                  ///< by step: the message that waits for its start; -1: none

  /// The schedule for streams of devices. Made by the first call; thread-safe.
  /// @throws InternalError  the schedule cannot run on a stream
  const StreamProgram& stream_program() const;

 private:
  mutable std::once_flag stream_program_once_;
  mutable StreamProgram stream_program_;
};

/// Makes schedules and keeps the most recently used ones. Thread-safe.
class ScheduleCache {
 public:
  /// @param capacity  number of schedules
  explicit ScheduleCache(std::size_t capacity) : kept_(capacity) {}
  /// Cache of all communicators of the process. Also usable in a forked child.
  static ScheduleCache& of_process();
  /// Returns the schedule of the rank `place.rank`, from the cache or newly made.
  std::shared_ptr<const PreparedSchedule> get(const Algorithm& algorithm, const Place& place, int segments);

 private:
  static std::mutex& mutex_of_process() { return of_process().mutex_; }
  struct Key {
    const Algorithm* algorithm;
    Place place;
    int segments;
    bool operator==(const Key&) const = default;
  };
  std::mutex mutex_;
  RecentlyUsed<Key, std::shared_ptr<const PreparedSchedule>> kept_;  // guarded by mutex_
};

}  // namespace farandole
