// SPDX-License-Identifier: Apache-2.0
#include "communicator/direct_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "device/device_operation.h"
#include "device/device_plan.h"
#include "farandole/core/error.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/log.h"
#include "operation/average.h"

namespace farandole {

bool DirectCalls::are_possible(const Endpoint& endpoint) {
  const EndpointProgress& progress = endpoint.progress();
  return endpoint.settings().collectives.check != "strict" && progress.usable_from_any_thread() &&
         !progress.shares_vendor_with_program();
}

DirectCalls::~DirectCalls() {
  if (watch_ == nullptr || watch_->has_closed_well()) return;
  // The device has not ended all calls: it may still use their memory, and write the words of the watch.
  keep_until_the_end(std::move(scratch_));
  keep_until_the_end(std::move(outgrown_));
  keep_until_the_end(std::move(captured_plans_));
  keep_until_the_end(std::move(watch_));
}

void DirectCalls::close() {
  if (watch_ != nullptr) watch_->close();
}

void DirectCalls::note_call_of_queue(PreparedCall& prepared) {
  // Count calls on host memory, too: if ranks name different memory in the same call, they must still count alike.
  ++queue_calls_;
  if (prepared.space.is_host()) return;
  prepared.descriptor.digest = mix(prepared.descriptor.digest, watch_ == nullptr ? 0 : watch_->calls().count());
}

/// True if a call like this never needs the host between its parts.
bool DirectCalls::is_direct_kind(const PreparedCall& prepared) const {
  const Method* const method = prepared.selection.method;
  if (method == &kDeviceMessageMethod) return true;
  return (method == &kDeviceScheduleMethod || method == &kDeviceVendorMethod) && !prepared.call.exchanges_counts() &&
         average_way(prepared.call, group_) != AverageWay::kWideSum;
}

/// @throws InvalidArgument  the call cannot be captured
void DirectCalls::refuse_capture(const PreparedCall& prepared) const {
  // The default stream itself cannot be captured: it waits for a stream that is captured.
  if (prepared.call.stream.handle == nullptr) {
    throw InvalidArgument(
        fmt::format("{}: the device's default stream waits for a stream that is captured into a graph: end "
                    "the capture before the call, or pass the captured stream",
                    describe(prepared.descriptor)));
  }
  if (!is_direct_kind(prepared)) {
    throw InvalidArgument(
        fmt::format("{}: the stream is captured into a graph, and this call needs the host: end the "
                    "capture before the call, or call it outside of the graph",
                    describe(prepared.descriptor)));
  }
  if (!known_.contains(digest_of(prepared.descriptor, 0))) refuse_first_call(prepared);
}

void DirectCalls::refuse_first_call(const PreparedCall& prepared) const {
  throw InvalidArgument(
      fmt::format("{}: the stream is captured into a graph, and {} has not run this call before: run it once before "
                  "the capture, because a first call connects the ranks",
                  describe(prepared.descriptor), group_.describe()));
}

/// Waits until earlier calls in the queue are enqueued. Returns false if the call must go through the queue, to make
/// the device group or to connect the ranks.
bool DirectCalls::is_ready(const PreparedCall& prepared) {
  if (queue_.wait_until_enqueued()) ++waits_;
  group_.endpoint->faults().check();
  const bool is_schedule = prepared.selection.method == &kDeviceScheduleMethod;
  const bool was_connected = is_connected_;
  if (is_schedule) is_connected_ = true;  // by this call, if the queue runs it
  if (!queue_.devices().is_up(DeviceReach::kAll) || (is_schedule && !was_connected)) return false;
  if (watch_ == nullptr) start_watch();
  return true;
}

void DirectCalls::start_watch() {
  DeviceContext& context = queue_.devices().context();
  devices_ = queue_.devices().devices(DeviceReach::kAll);
  // Make the event on the device's thread, too: this thread may be capturing a stream.
  auto [words, used] = context.make_now("to allocate pinned memory", [&device = context.device()] {
    return std::pair(zeroed_pinned_scratch(device, DirectLog::kWordBytes),
                     device.make_event(DeviceEvent::Use::kStreams));
  });
  scratch_.used = std::move(used);
  auto watch =
      std::make_shared<DirectWatch>(group_, std::move(words), queue_.devices().shared_devices(DeviceReach::kAll));
  context.watch_thread().add(watch);
  group_.endpoint->progress().attach(watch);
  watch_ = std::move(watch);
}

bool DirectCalls::enqueue(const PreparedCall& prepared) {
  group_.endpoint->faults().check();
  Device& device = queue_.devices().context().device();
  const bool is_captured = device.is_capturing(prepared.call.stream);
  if (is_captured) refuse_capture(prepared);
  if (!is_direct_kind(prepared)) return false;
  if (!is_captured) known_.insert(digest_of(prepared.descriptor, 0));
  if (!is_ready(prepared)) {
    if (is_captured) refuse_first_call(prepared);
    return false;
  }
  DirectLog& calls = watch_->calls();
  const std::uint64_t number = calls.begin([this] { group_.endpoint->faults().check(); });
  Descriptor descriptor = prepared.descriptor;
  descriptor.digest = mix(descriptor.digest, queue_calls_);
  group_.endpoint->late_ranks().enter(group_.direct->id, number);
  const FlightRecorder::Id record =
      group_.endpoint->recorder().begin_inline(group_.direct->id, number, subject_of(descriptor));
  if (!is_captured) note_buffers(prepared.call, number);
  try {
    if (is_captured) {
      capture(prepared, number, descriptor);
    } else {
      run(prepared, number, false);
    }
    calls.end(descriptor, record, device, is_captured ? nullptr : &prepared.call.stream);
  } catch (const Error& error) {
    calls.cancel();
    fail(prepared, error);
  } catch (...) {
    calls.cancel();
    throw;
  }
  return true;
}

void DirectCalls::capture(const PreparedCall& prepared, std::uint64_t number, const Descriptor& descriptor) {
  DeviceContext& context = queue_.devices().context();
  Device& device = context.device();
  const StreamView stream = prepared.call.stream;
  std::uint32_t* const word = watch_->captured().take_word([&] {
    return context.make_now("to allocate pinned memory",
                            [&device] { return zeroed_pinned_scratch(device, CapturedCalls::kSlabBytes); });
  });
  bool is_watched = device.write_word(word, CapturedCalls::kBegun, stream);
  run(prepared, number, true);
  is_watched = is_watched && device.write_word(word, CapturedCalls::kIdle, stream);
  if (is_watched) return watch_->captured().add(word, number, descriptor);
  if (std::exchange(has_warned_, true)) return;
  log(LogLevel::kWarning,
      fmt::format(
          "{}: the driver cannot write words from a graph, so replays of {} are not watched: a replay that hangs "
          "is reported only if a call outside of graphs waits behind it",
          group_.endpoint->topology().describe(group_.endpoint->rank()), group_.describe()));
}

/// Makes the allocator keep buffers that the program releases before the call has ended.
void DirectCalls::note_buffers(const Call& call, std::uint64_t number) {
  DeviceBlocks& blocks = queue_.devices().context().blocks();
  const std::shared_ptr<const CallEnds> ends = watch_->calls().ends();
  blocks.note_use(call.output.data, call.output.size_in_bytes(), ends, number);
  if (call.input.data != call.output.data) {
    blocks.note_use(call.input.data, call.input.size_in_bytes(), ends, number);
  }
}

void DirectCalls::run(const PreparedCall& prepared, std::uint64_t number, bool is_captured) {
  const Call& call = prepared.call;
  if (group_.carries_messages) return enqueue_message(*devices_, call, group_.rank, call.stream);
  VendorPlan vendor;
  if (prepared.selection.method == &kDeviceVendorMethod) {
    vendor = plan_vendor(call, average_way(call, group_), group_.rank, group_.size(), devices_);
    if (!vendor.is_staged) {
      return enqueue_vendor(queue_.devices().context().device(), *devices_, call, vendor, call.stream);
    }
  }
  if (is_captured) return run_captured(make_plan(prepared, vendor), call.stream);
  run_in_scratch(plan_for(prepared, vendor), call.stream, number);
}

std::shared_ptr<DirectCalls::Plan> DirectCalls::make_plan(const PreparedCall& prepared,
                                                          const VendorPlan& vendor) const {
  const Call& call = prepared.call;
  const bool is_schedule = prepared.selection.method == &kDeviceScheduleMethod;
  const bool is_divided_first = is_schedule && average_way(call, group_) == AverageWay::kDividedFirst;
  auto plan = std::make_shared<Plan>(is_divided_first ? divided_sum(call, group_.size()) : call);
  plan->is_schedule = is_schedule;
  plan->vendor = vendor;
  if (is_schedule) plan->schedule = plan_execution(plan->call, prepared.selection, group_.rank, group_.size());
  plan->bytes = is_schedule ? device_memory_needed(plan->schedule, call.input.dtype) : call.input.size_in_bytes();
  return plan;
}

void DirectCalls::make_work(Plan& plan, void* memory) const {
  plan.work = plan.is_schedule ? make_scheduled_work_in(memory, group_.size(), plan.call, plan.schedule)
                               : make_vendor_work_in(memory, plan.call, plan.vendor);
}

/// Gives the plan its own memory, because replays of the graph may use it at the same time as other calls run.
void DirectCalls::run_captured(const std::shared_ptr<Plan>& plan, StreamView stream) {
  plan->own_memory = allocate(plan->bytes);
  make_work(*plan, plan->own_memory.get());
  captured_plans_.push_back(plan);
  plan->work->enqueue(queue_.devices().context().device(), devices_, stream);
}

void DirectCalls::run_in_scratch(Plan& plan, StreamView stream, std::uint64_t number) {
  Device& device = queue_.devices().context().device();
  if (plan.bytes > scratch_.bytes) grow_scratch(plan.bytes);
  if (plan.work == nullptr) make_work(plan, scratch_.memory.get());
  // Wait even if the handle is the last call's: a handle may be reused, or mean a different stream in each thread.
  if (scratch_.last_use > watch_->calls().ended()) device.wait(stream, *scratch_.used);
  plan.work->enqueue(device, devices_, stream);
  device.record(*scratch_.used, stream);
  scratch_.last_use = number;
}

void DirectCalls::grow_scratch(std::size_t bytes) {
  std::erase_if(outgrown_, [ended = watch_->calls().ended()](const Outgrown& each) { return each.last_use <= ended; });
  constexpr std::size_t kMostSpare = std::size_t{64} << 20;  // more could take memory that the program needs
  const std::size_t grown = std::max(bytes, std::min(2 * scratch_.bytes, scratch_.bytes + kMostSpare));
  DeviceScratch memory = allocate(grown);
  if (scratch_.memory != nullptr) outgrown_.push_back({std::move(scratch_.memory), scratch_.last_use});
  scratch_.memory = std::move(memory);
  scratch_.bytes = grown;
  for (auto& [key, plan] : plans_) plan->work.reset();  // their addresses point into the old memory
}

DeviceScratch DirectCalls::allocate(std::size_t bytes) const {
  DeviceContext& context = queue_.devices().context();
  context.blocks().collect();
  return context.make_now(fmt::format("to allocate {} bytes", bytes),
                          [bytes, &device = context.device()] { return device_scratch(device, bytes); });
}

DirectCalls::Plan& DirectCalls::plan_for(const PreparedCall& prepared, const VendorPlan& vendor) {
  constexpr std::size_t kKept = 1024;
  const Call& call = prepared.call;
  const Key key{digest_of(prepared.descriptor, 0), std::bit_cast<std::uint64_t>(call.prescale), call.input.data,
                call.output.data};
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  if (plans_.size() >= kKept) plans_.clear();  // plans hold no device memory
  return *plans_.emplace(key, make_plan(prepared, vendor)).first->second;
}

void DirectCalls::fail(const PreparedCall& prepared, const Error& error) {
  EndpointFaults& faults = group_.endpoint->faults();
  if (error.kind() == ErrorKind::kDeviceError) faults.find_dead_peers();
  faults.poison(error.kind(),
                fmt::format("{} in {} ({}): {}", group_.endpoint->topology().describe(group_.endpoint->rank()),
                            group_.describe(), describe(prepared.descriptor), error.message()));
  faults.check();
  throw_error(error.kind(), error.message());
}

}  // namespace farandole
