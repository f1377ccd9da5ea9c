// SPDX-License-Identifier: Apache-2.0
#include "engine_health.h"

#include <fmt/format.h>

#include <exception>

#include "farandole/core/error.h"

namespace farandole {
namespace {

// A rank is idle after this fraction of FARANDOLE_WARN_AFTER.
constexpr double kIdleFraction = 1.0 / 6;

}  // namespace

EngineHealth::EngineHealth(int rank, Endpoint& endpoint)
    : endpoint_(endpoint),
      rank_(rank),
      stall_(endpoint.settings().faults.warn_after, endpoint.settings().faults.timeout),
      idle_(kIdleFraction * endpoint.settings().faults.warn_after) {}

void EngineHealth::poll_peers() {
  try {
    endpoint_.faults().poll();
  } catch (const std::exception& error) {
    endpoint_.faults().poison(ErrorKind::kTransportError, message_of(error));
  }
}

void EngineHealth::check(ProcessSets& sets, std::uint64_t progress, Clock::time_point now) {
  check_stall(sets, now);
  check_idle(sets, progress, now);
}

void EngineHealth::check_stall(const ProcessSets& sets, Clock::time_point now) {
  const auto waiting = sets.longest_waiting();
  if (!waiting) return;
  stall_.watch(waiting->since);
  try {
    stall_.check(
        [&] {
          const std::string where = waiting->id == 0 ? "" : fmt::format("in process set {} ", waiting->id);
          return fmt::format(
              "{}rank {} has been waiting for {:.1f} s for {}; other ranks have not submitted the same, or not reached "
              "it yet",
              where, rank_, stall_.waited(now).count(), waiting->set->describe_waiting());
        },
        now);
  } catch (const Timeout& error) {
    endpoint_.faults().poison(error.kind(), error.message());
  }
}

void EngineHealth::check_idle(ProcessSets& sets, std::uint64_t progress, Clock::time_point now) {
  if (!sets.waits_for_peers()) {
    idle_.end();
  } else if (idle_.update(progress, now)) {
    sets.announce_idle();
  }
}

}  // namespace farandole
