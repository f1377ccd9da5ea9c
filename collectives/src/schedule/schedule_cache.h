// SPDX-License-Identifier: Apache-2.0
// Schedules ready to run, kept for the next call.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "farandole/collectives/algorithms.h"
#include "schedule/recently_used.h"
#include "schedule/stream_program.h"

namespace farandole {

/// A schedule with its edges turned round, as the executor follows them.
struct PreparedSchedule {
  explicit PreparedSchedule(Schedule made);

  Schedule schedule;
  std::vector<int> waits;                     ///< how many events each step waits for
  std::vector<std::vector<int>> on_complete;  ///< steps that a step's completion brings closer
  int first_written = 0, end_written = 0;     ///< pieces of the data that steps write lie in this range
  std::vector<int> on_start;                  ///< the next message of the same direction and peer; -1: none

  /// Made when it is first asked for. Thread-safe. @throws InternalError  the schedule is for hosts only
  const StreamProgram& stream_program() const;

 private:
  mutable std::once_flag stream_program_once_;
  mutable StreamProgram stream_program_;
};

/// Makes schedules and keeps the most recently used ones of all communicators of the process. Thread-safe.
class ScheduleCache {
 public:
  explicit ScheduleCache(std::size_t capacity) : kept_(capacity) {}
  /// A forked child may use what it holds.
  static ScheduleCache& of_process();
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
