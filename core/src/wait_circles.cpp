// SPDX-License-Identifier: Apache-2.0
#include "wait_circles.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "farandole/internal/fixed_text.h"

namespace farandole {
namespace {

// Share of FARANDOLE_WARN_AFTER that a rank must have waited before it passes a probe on. The rank that asks has waited
// for all of it; ranks that began to wait a little later need not be asked again.
constexpr double kPassesOnAfter = 0.9;

/// What a rank waits for, as a value.
struct RankWait {
  BlockedCall call;
  std::string label;
  std::vector<int> members;
  bool may_go_on = false;
};

std::optional<RankWait> wait_of(const BlockedCalls& calls) {
  std::optional<RankWait> wait;
  (void)calls.with_oldest([&](const BlockedCall& call, std::size_t count) {
    wait = RankWait{call, *call.label, *call.members, count > 1 || calls.has_several_threads() || !call.needs_all};
    wait->call.label = nullptr;
    wait->call.members = nullptr;
  });
  return wait;
}

}  // namespace

WaitCircles::WaitCircles(const Topology& topology, int process, Seconds warn_after, Surroundings surroundings)
    : topology_(topology), process_(process), warn_after_(warn_after), surroundings_(std::move(surroundings)) {}

void WaitCircles::search(int rank) {
  const auto wait = wait_of(surroundings_.blocked(rank));
  if (!wait) return;
  WaitProbe probe;
  probe.origin = static_cast<std::uint32_t>(rank);
  probe.number = next_number_.fetch_add(1, std::memory_order_relaxed);
  probe.origin_communicator = wait->call.communicator;
  probe.origin_sequence = wait->call.sequence;
  pass_on(rank, probe);
}

void WaitCircles::receive(int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe& probe) {
  const auto wait = wait_of(surroundings_.blocked(rank));
  if (!wait || surroundings_.entered(rank, communicator) >= sequence) return;
  if (static_cast<std::uint32_t>(rank) == probe.origin) {
    const bool waits_for_the_same =
        wait->call.communicator == probe.origin_communicator && wait->call.sequence == probe.origin_sequence;
    if (waits_for_the_same) surroundings_.found(rank, describe(rank, probe), probe.is_certain != 0);
    return;
  }
  if (Clock::now() - wait->call.since >= kPassesOnAfter * warn_after_ && is_first_time(rank, probe))
    pass_on(rank, probe);
}

bool WaitCircles::is_first_time(int rank, const WaitProbe& probe) {
  const std::lock_guard lock(mutex_);
  return std::exchange(passed_on_[{rank, static_cast<int>(probe.origin)}], probe.number) != probe.number;
}

/// Adds the rank to the path, and sends the probe to all ranks that have not entered what the rank waits for.
void WaitCircles::pass_on(int rank, WaitProbe probe) {
  const auto wait = wait_of(surroundings_.blocked(rank));
  if (!wait) return;
  if (wait->may_go_on) probe.is_certain = 0;
  const BlockedCall& call = wait->call;
  std::string path = text_of(probe.path);
  const std::string hop = fmt::format("{}{} in {} of {}", path.empty() ? "" : ", which waits for ",
                                      topology_.describe(rank), call.what.describe(call.what.words), wait->label);
  if (probe.hidden == 0 && path.size() + hop.size() < WaitProbe::kPathBytes) {
    write_text(probe.path, path + hop);
  } else {
    ++probe.hidden;
  }
  for (const int member : surroundings_.missing(call.communicator, call.sequence, wait->members)) {
    if (member == rank) continue;
    if (topology_.rank(member).process == process_) {
      receive(member, call.communicator, call.sequence, probe);
    } else {
      surroundings_.post(member, call.communicator, call.sequence, probe);
    }
  }
}

std::string WaitCircles::describe(int origin, const WaitProbe& probe) const {
  const std::string more = probe.hidden == 0 ? "" : fmt::format(", which waits for one of {} more ranks", probe.hidden);
  return fmt::format(
      "ranks wait for each other in a circle: {}{}, which waits for rank {}; ranks that share several communicators "
      "must call their collectives in the same order, or from a thread for each",
      text_of(probe.path), more, origin);
}

}  // namespace farandole
