// SPDX-License-Identifier: Apache-2.0
#include "communicator/direct_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "device/device_operation.h"
#include "farandole/core/error.h"
#include "farandole/internal/log.h"
#include "operation/average.h"

namespace farandole {

std::unique_ptr<DirectCalls> DirectCalls::make(const Group& group, WorkQueue& queue) {
  if (!group.direct || group.endpoint->settings().collectives.check == "strict") return nullptr;
  const EndpointProgress& progress = group.endpoint->progress();
  if (!progress.usable_from_any_thread() || progress.shares_vendor_with_program()) {
    log(LogLevel::kInfo,
        fmt::format("{} compares calls on devices before it enqueues them, because MPI allows only the "
                    "program's own calls",
                    group.describe()));
    return nullptr;
  }
  return std::make_unique<DirectCalls>(group, queue);
}

bool DirectCalls::can_enqueue(const PreparedCall& prepared) {
  const Method* const method = prepared.selection.method;
  const bool is_schedule = method == &kDeviceScheduleMethod;
  if (!is_schedule && method != &kDeviceVendorMethod) return false;
  if (prepared.call.exchanges_counts() || average_way(prepared.call, group_) == AverageWay::kWideSum) return false;
  queue_.wait_until_enqueued();
  if (!queue_.devices().is_up(DeviceReach::kAll)) return false;
  if (is_schedule && !is_connected_) {
    is_connected_ = true;
    return false;
  }
  return true;
}

void DirectCalls::start_watch() {
  DeviceContext& context = queue_.devices().context();
  devices_ = queue_.devices().devices(DeviceReach::kAll);
  watch_ = std::make_shared<DirectWatch>(group_, context, queue_.devices().shared_devices(DeviceReach::kAll));
  group_.endpoint->progress().attach(watch_);
  context.watch_thread().add(watch_);
}

bool DirectCalls::enqueue(const PreparedCall& prepared) {
  group_.endpoint->faults().check();
  Device& device = queue_.devices().context().device();
  const std::uint64_t digest = digest_of(prepared.descriptor, 0);
  const bool is_captured = device.is_capturing(prepared.call.stream);
  if (is_captured && !known_.contains(digest)) {
    throw InvalidArgument(
        fmt::format("{}: the stream is captured into a graph, and this call has never run on {}: run "
                    "it once before the capture, because a first call connects the ranks",
                    describe(prepared.descriptor), group_.describe()));
  }
  if (!is_captured) known_.insert(digest);
  if (!can_enqueue(prepared)) return false;
  if (watch_ == nullptr) start_watch();
  std::optional<KeptCall> divided;
  if (average_way(prepared.call, group_) == AverageWay::kDividedFirst) {
    divided.emplace(divided_sum(prepared.call, group_.size()));
  }
  DirectLog& calls = watch_->calls();
  const std::uint64_t number = calls.begin([&] { group_.endpoint->faults().check(); });
  group_.endpoint->late_ranks().enter(group_.direct->id, number);
  const FlightRecorder::Id record =
      group_.endpoint->recorder().begin_inline(group_.direct->id, number, subject_of(prepared.descriptor));
  try {
    run(prepared, divided ? *divided : prepared.call, number, is_captured);
    calls.end(prepared.descriptor, record, device, is_captured ? nullptr : &prepared.call.stream);
  } catch (const Error& error) {
    calls.cancel();
    fail(prepared, error);
  }
  return true;
}

void DirectCalls::run(const PreparedCall& prepared, const Call& call, std::uint64_t number, bool is_captured) {
  Device& device = queue_.devices().context().device();
  const StreamView stream = prepared.call.stream;
  if (prepared.selection.method == &kDeviceVendorMethod) {
    const VendorPlan vendor = plan_vendor(call, group_.rank, group_.size(), devices_);
    if (!vendor.is_staged) return enqueue_vendor(device, *devices_, call, vendor, stream);
  }
  if (is_captured) {
    captured_plans_.push_back(make_plan(prepared, call));
    return captured_plans_.back()->work->enqueue(device, devices_, stream);
  }
  Plan& plan = plan_for(prepared, call);
  plan.work->enqueue(device, devices_, stream);
  plan.last_use = number;
}

std::shared_ptr<DirectCalls::Plan> DirectCalls::make_plan(const PreparedCall& prepared, const Call& call) {
  auto plan = std::make_shared<Plan>(call, prepared.selection);
  DeviceContext& context = queue_.devices().context();
  const bool is_vendor = prepared.selection.method == &kDeviceVendorMethod;
  context.run_now(fmt::format("to prepare {}", describe(prepared.descriptor)),
                  [plan, is_vendor, &device = context.device(), rank = group_.rank, size = group_.size(),
                   devices = queue_.devices().shared_devices(DeviceReach::kAll)] {
                    plan->work = is_vendor ? make_vendor_work(device, rank, size, plan->call, devices.get())
                                           : make_scheduled_work(device, rank, size, plan->call, plan->selection);
                  });
  return plan;
}

DirectCalls::Plan& DirectCalls::plan_for(const PreparedCall& prepared, const Call& call) {
  constexpr std::size_t kKept = 256;
  const Key key{digest_of(prepared.descriptor, 0), call.prescale, call.input.data, call.output.data};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return *found->second;
  if (plans_.size() >= kKept) drop_unused_plans();
  return *plans_.emplace(key, make_plan(prepared, call)).first->second;
}

/// Drops the older half of the plans, as far as the device has ended their last use.
void DirectCalls::drop_unused_plans() {
  std::vector<std::uint64_t> uses;
  for (const auto& [key, plan] : plans_) uses.push_back(plan->last_use);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  const std::uint64_t limit = std::min(*middle, watch_->calls().ended());
  std::erase_if(plans_, [limit](const auto& entry) { return entry.second->last_use < limit; });
}

void DirectCalls::fail(const PreparedCall& prepared, const Error& error) {
  EndpointFaults& faults = group_.endpoint->faults();
  faults.poll();  // the death of a peer says more than the vendor's error
  faults.poison(error.kind(),
                fmt::format("{} in {} ({}): {}", group_.endpoint->topology().describe(group_.endpoint->rank()),
                            group_.describe(), describe(prepared.descriptor), error.message()));
  faults.check();
  throw_error(error.kind(), error.message());
}

void DirectCalls::close() {
  if (watch_ != nullptr) watch_->close();
}

}  // namespace farandole
