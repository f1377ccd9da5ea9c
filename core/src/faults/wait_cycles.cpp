// SPDX-License-Identifier: Apache-2.0
#include "faults/wait_cycles.h"

#include <fmt/format.h>

#include <optional>

#include "farandole/internal/fixed_text.h"

namespace farandole {
namespace {

// Share of FARANDOLE_WARN_AFTER that a rank must have waited before it passes a probe on. The origin has waited for the
// full time. The share is below 1 so that ranks that began to wait a little later pass the first probe on, too.
constexpr double kPassesOnAfter = 0.9;
// Multiple of FARANDOLE_WARN_AFTER after which a cycle is certain: a thread that has not used Farandole yet would have
// entered the collective by then. Ranks search with each warning, after 1, 3, 7, … times FARANDOLE_WARN_AFTER.
constexpr double kCertainAfter = 5;
constexpr const char* kAdvice =
    "ranks that share several communicators must call their collectives in the same order, or from a thread for each";

/// Copy of the call in which a rank is blocked.
struct RankWait {
  BlockedCall call;
  std::string label;
  std::vector<int> members;
  bool has_several_threads = false;
};

std::optional<RankWait> wait_of(const BlockedCalls& calls) {
  std::optional<RankWait> wait;
  calls.with_oldest([&](const BlockedCall& call) {
    wait = RankWait{call, *call.label, *call.members, calls.has_several_threads()};
    wait->call.label = nullptr;
    wait->call.members = nullptr;
  });
  return wait;
}

CycleDoubt doubt_about(const RankWait& wait, Seconds warn_after) {
  if (!wait.call.needs_all) return CycleDoubt::kNotCompared;
  if (wait.has_several_threads) return CycleDoubt::kSeveralThreads;
  const bool is_recent = Clock::now() - wait.call.since < kCertainAfter * warn_after;
  return is_recent ? CycleDoubt::kRecent : CycleDoubt::kNone;
}

std::string describe_doubt(const WaitProbe& probe) {
  switch (probe.doubt) {
    case CycleDoubt::kNone:
      return {};
    case CycleDoubt::kRecent:
      return "a thread that has not used Farandole yet may still end this; if none does, the job ends later by a "
             "Mismatch";
    case CycleDoubt::kSeveralThreads:
      return fmt::format("another thread of rank {} may still end this", probe.doubtful);
    case CycleDoubt::kNotCompared:
      return fmt::format("rank {} may still go on, because calls are not compared (FARANDOLE_CHECK=off)",
                         probe.doubtful);
  }
  return {};
}

}  // namespace

WaitCycles::WaitCycles(const Topology& topology, int process, Seconds warn_after, Environment environment)
    : topology_(topology), process_(process), warn_after_(warn_after), environment_(std::move(environment)) {}

void WaitCycles::search(int rank) {
  const auto wait = wait_of(environment_.blocked(rank));
  if (!wait) return;
  WaitProbe probe;
  probe.origin = static_cast<std::uint32_t>(rank);
  probe.number = next_number_.fetch_add(1, std::memory_order_relaxed);
  probe.origin_communicator = wait->call.communicator;
  probe.origin_sequence = wait->call.sequence;
  pass_on(rank, probe);
}

void WaitCycles::receive(int rank, std::uint32_t communicator, std::uint64_t sequence, const WaitProbe& probe) {
  const auto wait = wait_of(environment_.blocked(rank));
  if (!wait || environment_.entered(rank, communicator) >= sequence) return;
  if (static_cast<std::uint32_t>(rank) == probe.origin) {
    const bool waits_for_the_same =
        wait->call.communicator == probe.origin_communicator && wait->call.sequence == probe.origin_sequence;
    if (waits_for_the_same) environment_.found(rank, describe(probe), probe.doubt == CycleDoubt::kNone);
    return;
  }
  if (Clock::now() - wait->call.since >= kPassesOnAfter * warn_after_ && is_first_time(rank, probe))
    pass_on(rank, probe);
}

bool WaitCycles::is_first_time(int rank, const WaitProbe& probe) {
  const std::lock_guard lock(mutex_);
  return std::exchange(passed_on_[{rank, static_cast<int>(probe.origin)}], probe.number) != probe.number;
}

/// Adds the rank to the path, and sends the probe to all ranks that have not entered the rank's collective.
void WaitCycles::pass_on(int rank, WaitProbe probe) {
  const auto wait = wait_of(environment_.blocked(rank));
  if (!wait) return;
  if (const CycleDoubt doubt = doubt_about(*wait, warn_after_); doubt > probe.doubt) {
    probe.doubt = doubt;
    probe.doubtful = static_cast<std::uint32_t>(rank);
  }
  const BlockedCall& call = wait->call;
  std::string path = text_of(probe.path);
  const std::string hop = fmt::format("{}{} in {} ({})", path.empty() ? "" : ", which waits for ",
                                      topology_.describe(rank), wait->label, call.what.describe(call.what.words));
  if (path.empty() || (probe.hidden == 0 && path.size() + hop.size() < WaitProbe::kPathBytes)) {
    write_text(probe.path, path + hop);
  } else {
    ++probe.hidden;
  }
  for (const int member : environment_.missing(call.communicator, call.sequence, wait->members)) {
    if (member == rank) continue;
    if (topology_.rank(member).process == process_) {
      receive(member, call.communicator, call.sequence, probe);
    } else {
      environment_.post(member, call.communicator, call.sequence, probe);
    }
  }
}

std::string WaitCycles::describe(const WaitProbe& probe) {
  const std::string doubt = describe_doubt(probe);
  const std::string more = probe.hidden == 0 ? ""
                                             : fmt::format(", which waits for {} more rank{} in turn", probe.hidden,
                                                           probe.hidden == 1 ? "" : "s");
  return fmt::format("ranks {} for each other in a circle: {}{}, which waits for rank {}; {}{}{}",
                     doubt.empty() ? "wait" : "may be waiting", text_of(probe.path), more, probe.origin, doubt,
                     doubt.empty() ? "" : "; ", kAdvice);
}

}  // namespace farandole
