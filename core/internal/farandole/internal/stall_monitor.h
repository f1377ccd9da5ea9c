// SPDX-License-Identifier: Apache-2.0
// Warnings and deadlines of threads that wait.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/log.h"

namespace farandole {

/// Decides when a wait is due for a warning or an error: a warning after FARANDOLE_WARN_AFTER, further warnings after
/// pauses that double (so after 1, 3, 7, … times FARANDOLE_WARN_AFTER), and an error after FARANDOLE_TIMEOUT. A waiting
/// loop calls `check`, or `take_due` to report by itself:
///
///   StallMonitor stall(settings.faults.warn_after, settings.faults.timeout);
///   while (!arrived()) {
///     stall.check([&] { return "rank 0 waits for " + describe_missing(); });
///     rest();
///   }
///
/// Time in which the process was stopped does not count: StopDetector recognises a stop by a gap of more than 1 s
/// between calls. So call the monitor at least every 100 ms, or report an intended longer pause with `count_gap`.
/// Functions with a `now` parameter do not read the clock. Not thread-safe.
class StallMonitor {
 public:
  enum class Due { kNothing, kWarning, kError };

  /// @param timeout  0: no error is ever due   @param start  of the wait
  /// @param origin  what has set the timeout, for the error's text; must outlive the monitor
  StallMonitor(Seconds warn_after, Seconds timeout, Clock::time_point start = Clock::now(),
               const char* origin = "FARANDOLE_TIMEOUT")
      : warn_after_(warn_after), timeout_(timeout), origin_(origin), detector_(start) {
    restart(start);
  }

  /// Switches to the wait that began at `start`; no-op if the monitor already watches that wait.
  void watch(Clock::time_point start) {
    if (start != start_) restart(start);
  }
  /// Duration of the wait, excluding lost time (time in which the process did not run).
  Seconds waited(Clock::time_point now = Clock::now()) const { return now - start_ - lost_ - detector_.lost(now); }
  /// Reports that the gap since the last `look` was intended. The gap counts as waiting, not as lost time.
  void count_gap(Clock::time_point now) { detector_ = StopDetector(std::max(now, detector_.last_check())); }
  /// Notes that the waiter is running. `take_due` calls it.
  void look(Clock::time_point now) {
    const Clock::duration lost = detector_.check(now);
    if (lost == Clock::duration{0}) return;
    lost_ += lost;
    if (stops_.size() == kMaxStops) stops_.erase(stops_.begin());
    stops_.push_back({now, lost});
  }
  /// True shortly before a warning or the error is due: time to ask peers for the details that its text needs.
  bool is_near(Clock::time_point now) const {
    const bool error_is_next = timeout_.count() > 0 && timeout_ < warning_;
    const Seconds interval = error_is_next ? timeout_ : interval_;
    return std::min(Seconds(1), 0.25 * interval) > (error_is_next ? timeout_ : warning_) - waited(now);
  }
  /// Returns the report that is due: each warning once, and the error in every call after the deadline.
  Due take_due(Clock::time_point now) {
    look(now);
    const Seconds so_far = waited(now);
    if (timeout_.count() > 0 && so_far >= timeout_) return Due::kError;
    if (so_far < warning_) return Due::kNothing;
    interval_ *= 2;
    warning_ = so_far + interval_;
    return Due::kWarning;
  }
  /// Text of the error. @param what  which ranks wait for which
  std::string describe_error(std::string_view what) const {
    return fmt::format("the deadline of {} s ({}) has passed: {}", timeout_.count(), origin_, what);
  }

  /// Logs a warning that is due, or throws the error. @param describe  returns which ranks wait for which
  /// @throws Timeout  the deadline has passed
  template <class Describe>
  void check(const Describe& describe, Clock::time_point now = Clock::now()) {
    const Due due = take_due(now);
    if (due == Due::kError) throw Timeout(describe_error(describe()));
    if (due == Due::kWarning) log(LogLevel::kWarning, describe());
  }

 private:
  struct Stop {
    Clock::time_point end;
    Clock::duration lost;
  };
  void restart(Clock::time_point start) {
    start_ = start;
    interval_ = warning_ = warn_after_;
    // The time between the last look and the start of this wait belongs to no wait.
    if (start > detector_.last_check()) detector_ = StopDetector(start);
    lost_ = {};
    for (const Stop& stop : stops_) {
      if (stop.end > start) lost_ += stop.lost;
    }
  }

  static constexpr std::size_t kMaxStops = 16;

  const Seconds warn_after_, timeout_;
  const char* const origin_;
  StopDetector detector_;
  std::vector<Stop> stops_;  // most recent stops; `watch` may switch to a wait that began before a stop
  Clock::time_point start_{};
  Clock::duration lost_{0};  // lost time since the start
  Seconds interval_{0};      // between the last warning and the next
  Seconds warning_{0};       // time of the next warning, from the start of the wait
};

}  // namespace farandole
