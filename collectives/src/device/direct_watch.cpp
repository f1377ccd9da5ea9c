// SPDX-License-Identifier: Apache-2.0
#include "device/direct_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "device/device_context.h"
#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/error_classes.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"

namespace farandole {
namespace {

constexpr auto kDeviceCheckInterval = std::chrono::milliseconds(100);
/// From the report of a fault to the end of the process: time for the program to raise the fault and to end by itself.
constexpr auto kGrace = std::chrono::seconds(3);
constexpr int kExitStatus = 1;

Seconds watched(const Group& group, Seconds setting) {
  return group.watches ? setting : Seconds(0);
}

}  // namespace

DirectWatch::DirectWatch(const Group& group, DeviceContext& context, std::shared_ptr<DeviceGroup> devices)
    : group_(group),
      label_(group.describe()),
      context_(context),
      devices_(std::move(devices)),
      calls_(context.device()),
      comparison_(group_),
      stall_(group.endpoint->settings().faults.warn_after, watched(group, group.endpoint->settings().faults.timeout)) {}

void DirectWatch::tick(Clock::time_point now) {
  EndpointFaults& faults = group_.endpoint->faults();
  try {
    if (!faults.exist()) {
      faults.poll();
      const std::uint64_t count = calls_.count();
      is_active_ = calls_.ended() < count || calls_.being_enqueued().has_value();
      comparison_.report(calls_);
      comparison_.compare();
      check_deadline(now);
      check_devices(now);
    }
  } catch (const std::exception& error) {
    faults.poison(kind_of(error), fmt::format("{} in {}: {}", describe_self(), label_, message_of(error)));
  }
  if (faults.exist()) end_after_fault(now);
}

void DirectWatch::check_deadline(Clock::time_point now) {
  // Calls that were not reported yet are kept: a difference must be found even if the device has ended them.
  FlightRecorder& recorder = group_.endpoint->recorder();
  const std::optional<DirectLog::Pending> on_device =
      calls_.advance(comparison_.reported(), [&](FlightRecorder::Id record) { recorder.finish_inline(record); });
  const std::optional<DirectLog::Pending> pending = on_device ? on_device : calls_.being_enqueued();
  if (!pending || !group_.watches) return stall_.look(now);
  stall_.watch(pending->since);
  if (stall_.is_near(now)) {
    group_.endpoint->late_ranks().ask(group_.direct->id, pending->number, {}, group_.members);
  }
  const bool is_enqueued = on_device.has_value();
  stall_.check([&] { return describe_stall(*pending, is_enqueued, now); }, now);
}

std::string DirectWatch::describe_stall(const DirectLog::Pending& pending, bool is_enqueued,
                                        Clock::time_point now) const {
  const std::string missing =
      group_.endpoint->late_ranks().describe_missing(group_.direct->id, pending.number, group_.members);
  const std::string call =
      is_enqueued ? fmt::format(" ({})", farandole::describe(calls_.descriptor(pending.number))) : "";
  return fmt::format("{} waits for {:.1f} s for {} call {} in the caller's device order{} of {}; {}", describe_self(),
                     stall_.waited(now).count(), is_enqueued ? "its device to end" : "the vendor's library to enqueue",
                     pending.number, call, label_,
                     missing.empty() ? "all ranks have made the call" : "not in it yet: " + missing);
}

void DirectWatch::check_devices(Clock::time_point now) {
  if (devices_ == nullptr || now < next_device_check_ || !is_active_) return;
  next_device_check_ = now + kDeviceCheckInterval;
  const std::string error = devices_->asynchronous_error();
  if (!error.empty()) throw DeviceError(fmt::format("device {}: {}", context_.device().info().ordinal, error));
}

void DirectWatch::end_after_fault(Clock::time_point now) {
  const bool is_affected = comparison_.has_difference() || calls_.ended() < calls_.count() || calls_.being_enqueued();
  if (!is_affected && !fault_seen_) return;
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
                    exits ? "the process ends in 3 s (FARANDOLE_DEVICE_FAULT=exit)"
                          : "they are aborted (FARANDOLE_DEVICE_FAULT=raise)"));
    if (!exits) context_.abandon();
  }
  if (exits && now - *fault_seen_ >= kGrace) std::_Exit(kExitStatus);
}

bool DirectWatch::is_settled() const {
  const std::uint64_t count = calls_.count();
  return calls_.ended() == count && comparison_.is_complete(count);
}

void DirectWatch::close() {
  const std::lock_guard closing(close_mutex_);
  if (std::exchange(is_closed_, true)) return;
  context_.watch_thread().remove(*this);  // from here on this thread ticks
  const Seconds timeout = group_.endpoint->settings().faults.timeout;
  const Deadline deadline = timeout.count() > 0 ? Deadline::after(timeout) : Deadline::never();
  while (!group_.endpoint->faults().exist() && !is_settled()) {
    if (deadline.passed()) {
      log(LogLevel::kWarning,
          fmt::format("{} ends {} although {} has not reported all of its calls: the last ones were "
                      "not compared",
                      describe_self(), label_,
                      group_.endpoint->topology().describe(group_.member(comparison_.compared_rank()))));
      return;
    }
    tick(Clock::now());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

DirectWatchThread::~DirectWatchThread() {
  thread_.request_stop();
}

void DirectWatchThread::add(std::shared_ptr<DirectWatch> watch) {
  const std::lock_guard lock(mutex_);
  watches_.push_back(std::move(watch));
  if (thread_.joinable()) return;
  try {
    thread_ = start_library_thread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    watches_.pop_back();
    throw Unsupported(
        fmt::format("the thread that watches a device cannot be started ({}); raise the limits on threads",
                    error.code().message()));
  }
}

void DirectWatchThread::remove(const DirectWatch& watch) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watches_, [&](const auto& other) { return other.get() == &watch; });
}

void DirectWatchThread::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kActive{10}, kIdle{100};
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    bool is_active = false;
    const Clock::time_point now = Clock::now();
    for (const auto& watch : watches_) {
      watch->tick(now);
      is_active = is_active || watch->is_active();
    }
    changed_.wait_for(lock, stop, is_active ? kActive : kIdle, [] { return false; });
  }
}

}  // namespace farandole
