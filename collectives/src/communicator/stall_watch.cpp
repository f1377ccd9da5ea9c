// SPDX-License-Identifier: Apache-2.0
#include "communicator/stall_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "farandole/internal/log.h"

namespace farandole {
namespace {

// Time without progress after which a rank asks the awaited ranks how far they are, and interval between later
// questions. The answers also show whether a rank has left.
constexpr auto kFirstQuestion = std::chrono::milliseconds(500);
constexpr auto kNextQuestion = std::chrono::seconds(1);

}  // namespace

void StallWatch::begin(CollectiveWork& work, Clock::time_point now) {
  work.started = work.moved = now;
  work.next_question = now + kFirstQuestion;
}

void StallWatch::note_progress(CollectiveWork& work, Clock::time_point oldest_started, Clock::time_point now) {
  work.moved = now;
  // `check` is not called while a collective makes progress. So call `look` here: otherwise the monitor would assume
  // that the process was stopped, and would not count this time.
  monitor_.watch(oldest_started);
  monitor_.look(now);
  work.next_question = now + kFirstQuestion;
  work.asked = false;
}

std::optional<Failure> StallWatch::check(CollectiveWork& oldest, Clock::time_point now) {
  monitor_.watch(oldest.started);
  if (!oldest.asked && monitor_.is_near(now)) {
    oldest.asked = true;
    ask(oldest, now, /*all=*/true);
  } else if (now >= oldest.next_question) {
    ask(oldest, now, /*all=*/false);
  }
  const StallMonitor::Due due = monitor_.take_due(now);
  if (due == StallMonitor::Due::kWarning) oldest.asked = false;
  if (due == StallMonitor::Due::kError) {
    return Failure{ErrorKind::kTimeout, monitor_.describe_error(describe_stall(oldest, now))};
  }
  if (now - oldest.moved > LateRanks::kGoodbye && waits_for_rank_that_left(oldest)) {
    return Failure{ErrorKind::kPeerLost, describe_stall(oldest, now)};
  }
  if (group_.watches && due == StallMonitor::Due::kWarning) {
    log(LogLevel::kWarning, fmt::format("collective {} of {} ({}): {}", oldest.sequence, label_,
                                        describe(oldest.descriptor), describe_stall(oldest, now)));
    group_.endpoint->late_ranks().search_cycle();
  }
  return std::nullopt;
}

void StallWatch::ask(CollectiveWork& work, Clock::time_point now, bool all) const {
  work.next_question = now + kNextQuestion;
  std::vector<int> others;
  if (all) {
    // Begin at this rank, so that each rank is asked by about as many ranks (`ask` asks 16 processes at most).
    others = group_.members;
    std::rotate(others.begin(), others.begin() + group_.rank, others.end());
  }
  group_.endpoint->late_ranks().ask(group_.id, work.sequence, work.operation->waits_for(), others);
}

bool StallWatch::waits_for_rank_that_left(const CollectiveWork& work) const {
  const std::vector<int> ranks = work.operation->waits_for();
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return group_.endpoint->late_ranks().has_left(rank); });
}

std::string StallWatch::describe_missing(const CollectiveWork& work) const {
  return group_.endpoint->late_ranks().describe_missing(group_.id, work.sequence, group_.members);
}

std::string StallWatch::describe_stall(const CollectiveWork& work, Clock::time_point now) const {
  std::string text = fmt::format("waiting for {:.1f} s", monitor_.waited(now).count());
  const std::string missing = describe_missing(work);
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

bool StallWatch::has_peer_started(const ShmContext& host, std::uint64_t sequence) const {
  if (host.group && host.group->peer_has_started_next(LaneLedger::first_number(sequence))) return true;
  if (host.group_of_all() != nullptr) return false;
  const auto lane = static_cast<std::uint8_t>(sequence % kLanes);
  const Transport* asked = nullptr;
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank) continue;
    Transport& route = group_.route(peer);
    if (&route == asked) continue;
    asked = &route;
    if (route.has_arrived(group_.id, lane, group_.endpoint->rank())) return true;
  }
  return false;
}

}  // namespace farandole
