// SPDX-License-Identifier: Apache-2.0
// When each named tensor was negotiated, waited, moved: written while the job runs, in the format of Chrome's traces.
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

/// A file that chrome://tracing and Perfetto open, with one row per tensor. It is good at any time: the format does not
/// ask for the bracket that ends it. Thread-safe. Off, an event costs the look at a flag; on, it is put in memory, and
/// a thread of the timeline's own writes it. What comes faster than it can be written is dropped and counted.
class Timeline {
 public:
  using Time = Clock::time_point;
  static constexpr std::size_t kMaxPending = 1 << 16;  ///< events in memory

  Timeline() = default;
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Replaces the file, and ends the one that was being written.
  /// @param mark_cycles  also mark each negotiation of this rank
  /// @throws InvalidArgument  the file can not be written
  void start(const std::string& path, bool mark_cycles);
  /// Blocks until all is written. Does nothing if no file is.
  void stop();
  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  /// For what belongs to an event, so that nothing is computed in vain.
  Time now() const { return is_on() ? Clock::now() : Time{}; }

  // Nothing of these if it is off.
  /// Something begins in the row of the tensor, inside of what is open there.
  void begin(const std::string& tensor, std::string activity, Time when);
  /// All that is open in the row ends.
  void end(const std::string& tensor, Time when);
  /// Something that is over already. Without a beginning, because the timeline was off then: nothing.
  void span(const std::string& tensor, std::string activity, Time from, Time to);
  void mark_cycle(Time when);

 private:
  enum class Kind : std::uint8_t { kBegin, kEnd, kSpan, kCycle };
  struct Event {
    Kind kind = Kind::kCycle;
    std::string tensor, activity;
    Time when{};
    Clock::duration length{};
  };
  struct Row {
    int number = 0;
    int open = 0;
  };
  void put(Event event);
  void write_pending(const std::stop_token& stop);
  void write(const Event& event);
  void write_line(const std::string& line);
  Row& row_of(const std::string& tensor);

  std::mutex control_mutex_;  // start and stop
  std::atomic<bool> on_{false};
  std::atomic<bool> marks_cycles_{false};

  std::mutex mutex_;  // guards the next three
  std::condition_variable_any is_pending_;
  std::vector<Event> pending_;
  std::uint64_t dropped_ = 0;

  // Of the thread; of `start` and `stop` while it does not run.
  std::ofstream file_;
  std::string path_;
  Time origin_{};
  std::map<std::string, Row> rows_;
  bool is_first_line_ = true;
  std::jthread thread_;
};

}  // namespace farandole
