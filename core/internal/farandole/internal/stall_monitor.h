// SPDX-License-Identifier: Apache-2.0
// Waits that are not silent.
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

/// What has to be said about one wait, and when: a warning after FARANDOLE_WARN_AFTER, the next after twice as long,
/// and so on; an error after FARANDOLE_TIMEOUT. Time in which the process was stopped does not count (`LookGaps`), so
/// the monitor wants to be asked often; whoever cannot says so by `count_gap`. Never reads the clock where a time is
/// passed in. Not thread-safe.
class StallMonitor {
 public:
  enum class Due { kNothing, kWarning, kError };

  /// @param timeout  0: never   @param start  of the wait
  StallMonitor(Seconds warn_after, Seconds timeout, Clock::time_point start = Clock::now())
      : warn_after_(warn_after), timeout_(timeout), gaps_(start) {
    restart(start);
  }

  /// Watches over the wait that has begun at `start`. Goes on where that is the wait it watches over already.
  void watch(Clock::time_point start) {
    if (start != start_) restart(start);
  }
  Seconds waited(Clock::time_point now = Clock::now()) const { return now - start_ - lost_ - gaps_.lost(now); }
  /// Nobody was to look since the last look: the program was elsewhere. That time counts.
  void count_gap(Clock::time_point now) { gaps_ = LookGaps(std::max(now, gaps_.last_look())); }
  /// Notes that the waiter is running. `take_due` does it, too.
  void look(Clock::time_point now) {
    const Clock::duration lost = gaps_.look(now);
    if (lost == Clock::duration{0}) return;
    lost_ += lost;
    if (stops_.size() == kKeptStops) stops_.erase(stops_.begin());
    stops_.push_back({now, lost});
  }
  /// True shortly before a warning or the error: the time to ask peers for what it shall say.
  bool is_near(Clock::time_point now) const {
    const bool error_is_next = timeout_.count() > 0 && timeout_ < warning_;
    const Seconds interval = error_is_next ? timeout_ : interval_;
    return std::min(Seconds(1), 0.25 * interval) > (error_is_next ? timeout_ : warning_) - waited(now);
  }
  /// What is due. Each warning is due once; the error from its time on.
  Due take_due(Clock::time_point now) {
    look(now);
    const Seconds so_far = waited(now);
    if (timeout_.count() > 0 && so_far >= timeout_) return Due::kError;
    if (so_far < warning_) return Due::kNothing;
    interval_ *= 2;
    warning_ = so_far + interval_;
    return Due::kWarning;
  }
  /// The text of the error. @param what  which ranks wait for which
  std::string describe_error(std::string_view what) const {
    return fmt::format("the deadline of {} s (FARANDOLE_TIMEOUT) has passed: {}", timeout_.count(), what);
  }

  /// To be called now and then: says what is due. @param describe  returns which ranks wait for which   @throws Timeout
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
    // Nothing was watched between the last look and a wait that began after it.
    if (start > gaps_.last_look()) gaps_ = LookGaps(start);
    lost_ = {};
    for (const Stop& stop : stops_) {
      if (stop.end > start) lost_ += stop.lost;
    }
  }

  static constexpr std::size_t kKeptStops = 16;

  const Seconds warn_after_, timeout_;
  LookGaps gaps_;
  std::vector<Stop> stops_;  // the last ones, for waits that began before them
  Clock::time_point start_{};
  Clock::duration lost_{0};  // since the start
  Seconds interval_{0};      // between the last warning and the next
  Seconds warning_{0};       // the next one, from the start of the wait
};

}  // namespace farandole
