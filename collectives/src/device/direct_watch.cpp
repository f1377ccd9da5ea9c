// SPDX-License-Identifier: Apache-2.0
#include "device/direct_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/error_classes.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

constexpr auto kDeviceCheckInterval = std::chrono::milliseconds(100);
/// Time from the report of a fault to the end of the process, in which the program can raise the fault and end by
/// itself.
constexpr auto kGrace = std::chrono::seconds(3);
constexpr int kExitStatus = 1;
constexpr const char* kMadeByAll =
    "all ranks have made the call; look for other work that hangs in its stream; the calls of several communicators "
    "must be in the same order on all ranks";

}  // namespace

DirectWatch::DirectWatch(const Group& group, DeviceScratch words, std::shared_ptr<DeviceGroup> devices)
    : group_(group),
      label_(group.describe()),
      context_ref_(std::in_place, group.endpoint),
      context_(context_ref_->context()),
      devices_(std::move(devices)),
      calls_(std::move(words)),
      comparison_(group_),
      stall_(group.stall_monitor()) {}

void DirectWatch::tick(Clock::time_point now) {
  look(now);
  if (group_.endpoint->faults().exist()) end_after_fault(now);
  context_.blocks().collect();
}

void DirectWatch::look(Clock::time_point now) {
  EndpointFaults& faults = group_.endpoint->faults();
  try {
    if (!faults.exist()) {
      faults.poll();
      comparison_.report(calls_);
      comparison_.compare();
      check_deadline(now);
      check_devices(now);
    }
  } catch (const std::exception& error) {
    if (kind_of(error) == ErrorKind::kDeviceError) faults.find_dead_peers();
    faults.poison(kind_of(error), fmt::format("{} in {}: {}", describe_self(), label_, message_of(error)));
  }
  is_active_ = !is_settled() || calls_.being_enqueued().has_value();
}

/// Releases reported calls that have ended. Returns the oldest reported call that has not ended.
std::optional<DirectLog::Pending> DirectWatch::give_up_ended(Clock::time_point now) {
  FlightRecorder& recorder = group_.endpoint->recorder();
  // Keep calls that were not reported: they must be compared even if they have ended on the device.
  return calls_.advance(comparison_.reported(), [&](FlightRecorder::Id record) {
    recorder.finish_inline(record);
    last_end_ = now;
  });
}

std::optional<DirectWatch::Wait> DirectWatch::oldest_wait(Clock::time_point now) {
  const std::optional<CapturedCalls::Replay> replay = captured_.look(now);
  const std::optional<DirectLog::Pending> on_device = give_up_ended(now);
  const std::optional<DirectLog::Pending> pending = on_device ? on_device : calls_.being_enqueued();
  last_end_ = std::max(last_end_, captured_.last_end());
  // A thread in the vendor's library does not wait for replays that began later.
  if (!on_device && pending && (!replay || pending->since < replay->since)) {
    return Wait{Wait::For::kEnqueue, *pending, {}, {}};
  }
  // Calls that have not ended usually wait behind the replay, in its stream.
  if (replay) return Wait{Wait::For::kReplay, {replay->number, replay->since}, replay->descriptor, pending};
  if (!pending) return std::nullopt;
  // A device runs calls in sequence: a call that was enqueued long ago may have begun just now.
  const DirectLog::Pending call{pending->number, std::max(pending->since, last_end_)};
  return Wait{Wait::For::kCall, call, calls_.descriptor(call.number), {}};
}

void DirectWatch::check_deadline(Clock::time_point now) {
  const std::optional<Wait> wait = oldest_wait(now);
  if (!wait || !group_.watches) return stall_.look(now);
  stall_.watch(wait->call.since);
  if (stall_.waited(now) > LateRanks::kGoodbye) check_departures(wait->behind.value_or(wait->call));
  if (stall_.is_near(now)) {
    group_.endpoint->late_ranks().ask(group_.direct->id, wait->call.number, {}, group_.members);
  }
  stall_.check([&] { return describe_stall(*wait, now); }, now);
}

/// Checks only the rank before this one, which reports all its calls to this rank before it leaves.
void DirectWatch::check_departures(const DirectLog::Pending& pending) const {
  const int rank = group_.member(comparison_.compared_rank());
  if (comparison_.is_complete(pending.number) || !group_.endpoint->late_ranks().has_left(rank)) return;
  throw PeerLost(fmt::format("{} has left the job without call {} in the caller's device order",
                             group_.endpoint->topology().describe(rank), pending.number));
}

std::string DirectWatch::describe_stall(const Wait& wait, Clock::time_point now) const {
  const auto describe_others = [&](std::uint64_t call, const char* if_all_are_in_it) {
    const std::string missing = group_.endpoint->late_ranks().describe_missing(group_.direct->id, call, group_.members);
    return missing.empty() ? if_all_are_in_it : "not in it yet: " + missing;
  };
  const std::string begin = fmt::format("{} waits for {:.1f} s for ", describe_self(), stall_.waited(now).count());
  const std::string call = fmt::format("call {} in the caller's device order", wait.call.number);
  if (wait.what == Wait::For::kEnqueue) {
    return fmt::format("{}the vendor's library to enqueue {} of {}; {}", begin, call, label_,
                       describe_others(wait.call.number, kMadeByAll));
  }
  const std::string subject = fmt::format("{} ({}) of {}", call, farandole::describe(wait.descriptor), label_);
  if (wait.what == Wait::For::kCall) {
    return fmt::format("{}its device to end {}; {}", begin, subject, describe_others(wait.call.number, kMadeByAll));
  }
  std::string text = fmt::format("{}its device to end a replay of captured {}; {}", begin, subject,
                                 describe_others(wait.call.number,
                                                 "all ranks have captured the call: replay its graph on every rank, "
                                                 "as often and in the same order among the other calls"));
  if (const std::uint64_t next = calls_.ended() + 1; next <= calls_.count()) {
    text += fmt::format("; call {} has not ended either; {}", next, describe_others(next, kMadeByAll));
  }
  return text;
}

void DirectWatch::check_devices(Clock::time_point now) {
  if (devices_ == nullptr || now < next_device_check_ || !is_on_device()) return;
  next_device_check_ = now + kDeviceCheckInterval;
  context_.check(*devices_);
}

bool DirectWatch::is_affected() {
  try {
    (void)calls_.advance(calls_.count(), [](FlightRecorder::Id) {});
  } catch (const DeviceError&) {
    // The calls will never end.
  }
  return comparison_.has_difference() || calls_.ended() < calls_.count() || calls_.being_enqueued() ||
         calls_.has_captured() || calls_.has_lost();
}

void DirectWatch::end_after_fault(Clock::time_point now) {
  if (!is_affected()) return;
  const bool exits = group_.endpoint->settings().faults.device_fault == "exit";
  if (!fault_seen_) {
    fault_seen_ = now;
    std::string fault;
    try {
      group_.endpoint->faults().check();
    } catch (const std::exception& error) {
      fault = error.what();
    }
    log(LogLevel::kError,
        fmt::format("{}; the device of {} has calls of {} that cannot end well, so {}", fault, describe_self(), label_,
                    exits ? "the process ends in 3 s, unless the program ends the communicator before "
                            "(FARANDOLE_DEVICE_FAULT=exit)"
                          : "they are aborted (FARANDOLE_DEVICE_FAULT=raise)"));
    if (!exits) context_.abandon();
  }
  if (now - *fault_seen_ < kGrace) return;
  // A thread that stays in the vendor's library cannot raise the fault, and the memory that it uses cannot be freed.
  if (exits || calls_.being_enqueued()) std::_Exit(kExitStatus);
}

bool DirectWatch::is_settled() const {
  return !is_on_device() && comparison_.is_complete(calls_.count());
}

std::string DirectWatch::describe_closing() const {
  std::string awaited =
      group_.endpoint->topology().describe(group_.member(comparison_.compared_rank())) + " to report its calls";
  if (captured_.has_running()) awaited = "its device to end a replay of a graph that holds calls of it";
  if (calls_.ended() < calls_.count()) awaited = fmt::format("its device to end call {}", calls_.ended() + 1);
  return fmt::format("{} ends {}: waiting for {}", describe_self(), label_, awaited);
}

void DirectWatch::close() {
  const std::lock_guard closing(close_mutex_);
  if (closed_well_) return;
  closed_well_ = false;
  context_.watch_thread().remove(*this);  // from here on this thread looks
  // Nobody else can watch the end of a communicator, so `watches` does not matter here.
  StallMonitor closing_stall = group_.stall_monitor(/*always=*/true);
  constexpr int kLooksPerQuestion = 100;
  try {
    const auto probe = context_.device().make_event(DeviceEvent::Use::kStreams);
    for (int looks = 1; !is_settled() && !group_.endpoint->faults().exist(); ++looks) {
      look(Clock::now());
      // A device that has failed writes no words; only a call of the driver reports the failure.
      if (looks % kLooksPerQuestion == 0) context_.device().record(*probe, context_.stream());
      closing_stall.check([&] { return describe_closing(); });
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  } catch (const Timeout& timeout) {
    if (is_on_device()) {
      group_.endpoint->faults().poison(ErrorKind::kTimeout, timeout.message());
    } else {
      log(LogLevel::kWarning, timeout.message());
    }
  } catch (const Error& error) {
    group_.endpoint->faults().poison(error.kind(),
                                     fmt::format("{} in {}: {}", describe_self(), label_, error.message()));
  }
  // Abort, so that the program's streams go on: the program is inside this call, and raises the fault by its next call.
  const bool has_fault = group_.endpoint->faults().exist();
  if (has_fault && is_affected()) context_.abandon();
  closed_well_ = !is_on_device() && !calls_.has_lost() && !(has_fault && calls_.has_captured());
  // The device may still access the vendor's group, which the context keeps, and the words, which this object keeps.
  devices_.reset();
  context_ref_.reset();
}

}  // namespace farandole
