// SPDX-License-Identifier: Apache-2.0
#include "communicator/stall_watch.h"

#include <fmt/core.h>

#include "farandole/internal/log.h"

namespace farandole {
namespace {

// Time without progress until a rank asks the awaited ranks how far they are, and pause between further questions. The
// answers also show whether a rank has left.
constexpr auto kFirstQuestion = std::chrono::milliseconds(500);
constexpr auto kNextQuestion = std::chrono::seconds(1);

}  // namespace

void StallWatch::begin(Work::State& work, Clock::time_point now) {
  work.started = work.moved = now;
  work.next_question = now + kFirstQuestion;
}

void StallWatch::note_progress(Work::State& work, Clock::time_point oldest_started, Clock::time_point now) {
  work.moved = now;
  // `check` is not called while a collective makes progress. Call `look` here, or the monitor would take this time for
  // a stop of the process and not count it.
  monitor_.watch(oldest_started);
  monitor_.look(now);
  work.next_question = now + kFirstQuestion;
  work.asked = false;
}

std::optional<Failure> StallWatch::check(Work::State& oldest, Clock::time_point now) {
  monitor_.watch(oldest.started);
  if (!oldest.asked && monitor_.is_near(now)) {
    oldest.asked = true;
    ask(oldest, now, /*all=*/true);
  } else if (now >= oldest.next_question) {
    ask(oldest, now, /*all=*/false);
  }
  const StallMonitor::Due due = monitor_.take_due(now);
  if (due == StallMonitor::Due::kWarning) oldest.asked = false;
  if (group_.watches && due == StallMonitor::Due::kError) {
    return Failure{ErrorKind::kTimeout, monitor_.describe_error(describe_stall(oldest, now))};
  }
  if (now - oldest.moved > kGoodbye && peers_.waits_for_rank_that_left(oldest)) {
    return Failure{ErrorKind::kPeerLost, describe_stall(oldest, now)};
  }
  if (group_.watches && due == StallMonitor::Due::kWarning) {
    log(LogLevel::kWarning, fmt::format("collective {} of {} ({}): {}", oldest.sequence, label_,
                                        describe(oldest.descriptor), describe_stall(oldest, now)));
    group_.endpoint->late_ranks().search_cycle();
  }
  return std::nullopt;
}

void StallWatch::ask(Work::State& work, Clock::time_point now, bool all) const {
  work.next_question = now + kNextQuestion;
  peers_.ask(work, all);
}

std::string StallWatch::describe_stall(const Work::State& work, Clock::time_point now) const {
  std::string text = fmt::format("waiting for {:.1f} s", monitor_.waited(now).count());
  const std::string missing = peers_.describe_missing(work);
  if (!missing.empty()) {
    text += "; not in it yet: " + missing;
  } else {
    text += "; all ranks are in it";
  }
  std::string peers;
  for (const int rank : work.operation->waits_for()) peers += fmt::format(" {}", rank);
  if (!peers.empty()) text += "; this rank waits for messages from or to rank" + peers;
  return text;
}

}  // namespace farandole
