// SPDX-License-Identifier: Apache-2.0
// Timeline: when each named tensor was negotiated, waited and moved, written while the job runs in the format of
// Chrome's traces.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "farandole/internal/deadline.h"

namespace farandole {

/// Writes a trace file for chrome://tracing or Perfetto, with one row per tensor. The file can be opened at any time,
/// also after a crash: the format does not require the closing bracket. Thread-safe.
///
/// Cost: while the timeline is off, an event costs the test of a flag. While the timeline is on, an event is queued in
/// memory, and the timeline's own thread writes it to the file. When kMaxPending events are queued, further events are
/// dropped and counted.
class Timeline {
 public:
  using Time = Clock::time_point;
  static constexpr std::size_t kMaxPending = 1 << 16;  ///< maximum number of events in the queue

  Timeline() = default;
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Starts a trace in the file `path`. Replaces an existing file, and ends a trace that is being written.
  /// @param mark_cycles  also mark each negotiation of this rank
  /// @throws InvalidArgument  the file cannot be written
  void start(const std::string& path, bool mark_cycles);
  /// Ends the trace; blocks until the file is written. No-op if there is no trace.
  void stop();
  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  /// The time for an event; does not read the clock while the timeline is off.
  Time now() const { return is_on() ? Clock::now() : Time{}; }

  // No-ops while the timeline is off.
  /// Begins an activity in the tensor's row, nested in the activities that are open there.
  void begin(const std::string& tensor, std::string activity, Time when);
  /// Ends all open activities in the tensor's row.
  void end(const std::string& tensor, Time when);
  /// Adds an activity that has ended. No-op if `from` is unset because the timeline was off at that time.
  void span(const std::string& tensor, std::string activity, Time from, Time to);
  /// Marks the begin of a negotiation, if `start` was called with `mark_cycles`.
  void mark_cycle(Time when);

 private:
  enum class EventKind : std::uint8_t { kBegin, kEnd, kSpan, kCycle };
  struct Event {
    EventKind kind = EventKind::kCycle;
    std::string tensor, activity;
    Time when{};
    Clock::duration length{};
  };
  /// A tensor's row in the trace.
  struct Row {
    int number = 0;
    int open = 0;  ///< number of activities that are open
  };
  /// Queues an event, or counts it as dropped.
  void put(Event event);
  /// Main function of the timeline's thread.
  void write_pending(const std::stop_token& stop);
  void write(const Event& event);
  void write_line(const std::string& line);
  Row& row_of(const std::string& tensor);

  std::mutex control_mutex_;  // serialises start and stop
  std::atomic<bool> on_{false};
  std::atomic<bool> marks_cycles_{false};

  std::mutex mutex_;  // guards the next three members
  std::condition_variable_any is_pending_;
  std::vector<Event> pending_;
  std::uint64_t dropped_ = 0;

  // Used by the thread, and by `start` and `stop` while the thread does not run.
  std::ofstream file_;
  std::string path_;
  Time origin_{};
  std::map<std::string, Row> rows_;
  bool is_first_line_ = true;
  std::jthread thread_;
};

}  // namespace farandole
