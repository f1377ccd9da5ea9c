// SPDX-License-Identifier: Apache-2.0
#include "device/device_hierarchy.h"

#include <algorithm>
#include <utility>

#include "device/device_exchange.h"
#include "device/device_plan.h"
#include "device/device_scratch.h"
#include "messages/scheduled_collective.h"

namespace farandole {
namespace {

// Slices in pinned memory: one is being copied out, one exchanged, one copied in.
constexpr std::size_t kPinnedSlices = 3;
// Maximum number of slices of a plan; longer vectors get longer slices. A plan takes memory for each slice.
constexpr std::size_t kMaxDeviceSlices = 1024;

bool are_equal(const std::vector<std::size_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

/// True if the exchange receives into the pinned memory that it sends from.
bool is_in_place(const HierarchicalPhase& phase) {
  return phase.collective == Collective::kAllreduce || phase.input == phase.output;
}

Selection select_inside(const Call& call, int size, const Settings& settings) {
  SelectionQuery query;
  query.collective = call.collective;
  query.bytes = PreparedCall(call, size).bytes;
  query.size = size;
  query.link = kDeviceLink;
  query.memory = MemoryKind::kCuda;
  const Candidate best = candidates(query, settings).front();
  return Selection::schedule(*best.algorithm, best.segments, query.memory);
}

std::size_t slice_bytes_of(const Group& group) {
  return static_cast<std::size_t>(group.endpoint->settings().devices.slice_bytes);
}

void launch(Device& device, const std::vector<DeviceTask>& tasks, StreamView stream) {
  if (!tasks.empty()) device.launch(tasks, stream);
}

}  // namespace

HierarchicalQuery device_hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                            std::size_t slice_bytes) {
  HierarchicalQuery query = query_of(call, size);
  const std::size_t element_bytes = size_in_bytes(call.input.dtype);
  query.carriers = hierarchy.min_local_size();
  const auto carriers = static_cast<std::size_t>(query.carriers);
  // All slices except the last have equal parts, as the vendor's collectives require.
  query.slice_granularity = carriers * std::max<std::size_t>(1, kDeviceAlignment / element_bytes);
  std::size_t carried_bytes = PreparedCall(call, size).total * element_bytes;
  // In an alltoall the carriers of a host exchange the vectors of all the host's ranks.
  if (call.collective == Collective::kAlltoall) carried_bytes *= static_cast<std::size_t>(hierarchy.max_local_size());
  const std::size_t part_bytes = carried_bytes / carriers;
  // A reduce_scatter of uneven blocks is not sliced: in place, the result of a slice could overwrite input of a later
  // slice.
  const bool is_sliced = call.collective != Collective::kReduceScatter || !call.is_uneven();
  if (is_sliced)
    query.slices = static_cast<int>(std::clamp<std::size_t>(part_bytes / slice_bytes, 1, kMaxDeviceSlices));
  return query;
}

struct HierarchicalDeviceRun::OwnMemory {
  DeviceScratch scratch;
  std::vector<DeviceScratch> pinned;  ///< one per slice in flight; null if no copies are needed
};

/// State of one phase of the plan.
struct HierarchicalDeviceRun::Step {
  const HierarchicalPhase* phase = nullptr;
  Step* after = nullptr;  ///< must be enqueued (inside) or exchanged (across) before this step begins; may be null
  std::size_t place = 0;  ///< index in its track
  Call call;              ///< the phase as a call on device memory
  /// Recorded after the phase: in the stream of collectives (inside), or in the stream of copies in (across).
  std::shared_ptr<DeviceEvent> done;
  bool fully_enqueued = false;  ///< `done` is recorded, or the device's thread has a job that records it
  // Inside phases.
  std::shared_ptr<std::shared_ptr<DeviceWork>> work;  ///< set by the device's thread
  // Phases across: the pinned memory, and the bytes to copy out and in; 0 bytes if this rank sends or receives nothing.
  std::byte *sent = nullptr, *received = nullptr;
  std::size_t sent_bytes = 0, received_bytes = 0;
  std::shared_ptr<DeviceEvent> is_out;  ///< recorded after the copy out
  std::shared_ptr<const DeviceJob> copying_out;
  std::unique_ptr<Operation> exchange;
};

HierarchicalDeviceRun::HierarchicalDeviceRun(DeviceSlot& slot, const Call& call, std::uint64_t sequence,
                                             const DeviceEvents& events)
    : slot_(slot),
      call_(call),
      sequence_(sequence),
      events_(events),
      plan_(plan_hierarchical(
          device_hierarchical_query(call, *slot.hierarchy(), slot.group().size(), slice_bytes_of(slot.group())),
          *slot.hierarchy())),
      across_group_(group_across(slot.group(), plan_.across)),
      memory_{call.input.data, call.output.data, nullptr, size_in_bytes(call.input.dtype)},
      own_(std::make_shared<OwnMemory>()) {
  const auto across = std::count_if(plan_.phases.begin(), plan_.phases.end(), [](const HierarchicalPhase& phase) {
    return phase.where == HierarchicalPhase::Where::kAcross;
  });
  preparing_ = slot.context().thread().run(
      [own = own_, &context = slot.context(), slices = std::min(kPinnedSlices, static_cast<std::size_t>(across)),
       pinned = pinned_bytes(), scratch = plan_.scratch_count * memory_.element_bytes] {
        (void)context.copy_streams();
        own->scratch = device_scratch(context.device(), scratch);
        for (std::size_t i = 0; i < slices; ++i) {
          own->pinned.push_back(pinned_scratch(context.device(), pinned));
        }
      });
}

HierarchicalDeviceRun::~HierarchicalDeviceRun() = default;

std::size_t HierarchicalDeviceRun::pinned_bytes() const {
  std::size_t bytes = 0;
  if (slot_.sends_device_memory()) return bytes;
  for (const HierarchicalPhase& phase : plan_.phases) {
    if (phase.where == HierarchicalPhase::Where::kInside) continue;
    const std::size_t sent = phase.input_count * memory_.element_bytes;
    const std::size_t received = phase.output_count * memory_.element_bytes;
    bytes = std::max({bytes, (is_in_place(phase) ? 0 : device_aligned(sent)) + received, sent});
  }
  return bytes;
}

bool HierarchicalDeviceRun::is_prepared() {
  if (preparing_ == nullptr) return true;
  if (!preparing_->is_done()) return false;
  preparing_->check();
  preparing_.reset();
  memory_.scratch = own_->scratch.get();
  make_steps();
  return true;
}

void HierarchicalDeviceRun::make_steps() {
  Device& device = slot_.context().device();
  for (const HierarchicalPhase& phase : plan_.phases) {
    Step& step = *steps_.emplace_back(std::make_unique<Step>());
    step.phase = &phase;
    if (phase.after >= 0) step.after = steps_[static_cast<std::size_t>(phase.after)].get();
    step.call = call_of(phase, call_, memory_);
    step.done = device.make_event(DeviceEvent::Use::kStreams);
    Track& track = phase.where == HierarchicalPhase::Where::kInside ? inside_track_ : across_track_;
    step.place = track.steps.size();
    track.steps.push_back(&step);
    if (phase.where == HierarchicalPhase::Where::kInside) {
      // The vendor's collectives take equal parts, without counts.
      if (are_equal(phase.counts) && are_equal(phase.recv_counts)) step.call.counts = step.call.recv_counts = {};
      continue;
    }
    step.is_out = device.make_event(DeviceEvent::Use::kHost);
    const bool broadcasts = phase.collective == Collective::kBroadcast;
    const bool is_root = broadcasts && phase.root == across_group_.rank;
    if (!broadcasts || is_root) step.sent_bytes = step.call.input.size_in_bytes();
    if (!is_root) step.received_bytes = step.call.output.size_in_bytes();
    if (slot_.sends_device_memory()) step.sent_bytes = step.received_bytes = 0;
  }
  queue_job([ready = events_.ready, stream = slot_.context().stream()](Device& on) { on.wait(stream, *ready); });
}

Operation::State HierarchicalDeviceRun::advance() {
  if (!is_prepared()) return State::kWaiting;
  bool moved = false;
  for (bool again = true; again;) {
    check_jobs();
    const bool begins_inside = begin_inside(), begins_across = begin_across();
    again = begins_inside || begins_across || advance_exchange() == State::kMoved;
    moved = moved || again;
  }
  if (!fully_enqueued_ && inside_track_.is_begun() && across_track_.ended == across_track_.steps.size()) {
    record_end();
    return State::kMoved;
  }
  if (fully_enqueued_ && jobs_.empty()) return State::kDone;
  return moved ? State::kMoved : State::kWaiting;
}

void HierarchicalDeviceRun::check_jobs() {
  while (!jobs_.empty() && jobs_.front()->is_done()) {
    jobs_.front()->check();
    jobs_.pop_front();
  }
}

/// Inside phases are enqueued in the order of the plan: the ranks of a host must enqueue collectives in the same order.
bool HierarchicalDeviceRun::begin_inside() {
  if (inside_track_.is_begun()) return false;
  Step& step = *inside_track_.steps[inside_track_.begun];
  if (step.after != nullptr && !step.after->fully_enqueued) return false;
  step.work = std::make_shared<std::shared_ptr<DeviceWork>>();
  // Wait for a copy in. An earlier inside phase needs no event: its work is in the same stream.
  const bool comes_in = step.after != nullptr && step.after->phase->where == HierarchicalPhase::Where::kAcross;
  queue_job([work = step.work, make = inside_maker(step.call), before = tasks_of(step.phase->before),
             results = tasks_of(step.phase->results), in = comes_in ? step.after->done : nullptr, done = step.done,
             devices = slot_.devices(DeviceReach::kHost), stream = slot_.context().stream()](Device& device) {
    *work = make();
    if (in != nullptr) device.wait(stream, *in);
    launch(device, before, stream);
    (*work)->enqueue(device, devices, stream);
    launch(device, results, stream);
    device.record(*done, stream);
  });
  step.fully_enqueued = true;
  ++inside_track_.begun;
  return true;
}

/// A copy out needs a free slice of pinned memory.
bool HierarchicalDeviceRun::begin_across() {
  if (across_track_.is_begun() || across_track_.begun == across_track_.ended + own_->pinned.size()) return false;
  Step& step = *across_track_.steps[across_track_.begun];
  if (step.after != nullptr && !step.after->fully_enqueued) return false;
  if (void* const pinned = own_->pinned[step.place % own_->pinned.size()].get(); pinned != nullptr) {
    step.sent = static_cast<std::byte*>(pinned);
    step.received = is_in_place(*step.phase) ? step.sent : step.sent + device_aligned(step.call.input.size_in_bytes());
  }
  // Wait until the previous contents of this pinned memory have been copied in.
  const bool is_reused = step.place >= own_->pinned.size();
  const auto in = is_reused ? across_track_.steps[step.place - own_->pinned.size()]->done : nullptr;
  queue_job([before = tasks_of(step.phase->before), after = step.after != nullptr ? step.after->done : events_.ready,
             in, sent = step.sent, input = step.call.input.data, bytes = step.sent_bytes, is_out = step.is_out,
             stream = slot_.context().copy_streams().out](Device& device) {
    device.wait(stream, *after);
    if (in != nullptr) device.wait(stream, *in);
    launch(device, before, stream);
    device.copy(sent, input, bytes, stream);
    device.record(*is_out, stream);
  });
  step.copying_out = jobs_.back();
  ++across_track_.begun;
  return true;
}

/// Exchanges run one after another, because their messages use the same channels.
Operation::State HierarchicalDeviceRun::advance_exchange() {
  if (across_track_.ended == across_track_.begun) return State::kWaiting;
  Step& step = *across_track_.steps[across_track_.ended];
  if (step.exchange == nullptr) {
    if (!step.copying_out->is_done()) return State::kWaiting;
    check_jobs();  // throws if a job has failed: then `is_out` was not recorded, and would count as complete
    if (!step.is_out->is_complete()) return State::kWaiting;
    if (step.after != nullptr) release_before(*step.after);
    step.exchange = make_exchange(step);
  }
  if (const State state = step.exchange->advance(); state != State::kDone) return state;
  step.exchange.reset();
  copy_in(step);
  ++across_track_.ended;
  return State::kMoved;
}

std::unique_ptr<Operation> HierarchicalDeviceRun::make_exchange(const Step& step) {
  DeviceContext& context = slot_.context();
  Call call = step.call;
  const std::size_t bytes = step.phase->total * memory_.element_bytes;
  const Selection selection = select_across(across_group_, call.collective, bytes);
  if (slot_.sends_device_memory()) {
    return std::make_unique<DeviceExchange>(context, context.copy_streams().in, across_group_, call, selection,
                                            sequence_);
  }
  call.input = {step.sent, call.input.count, call.input.dtype};
  call.output = {step.received, call.output.count, call.input.dtype};
  return std::make_unique<ScheduledCollective>(across_group_, call, bytes, selection, sequence_);
}

void HierarchicalDeviceRun::copy_in(Step& step) {
  queue_job([output = step.call.output.data, received = step.received, bytes = step.received_bytes,
             results = tasks_of(step.phase->results), done = step.done,
             stream = slot_.context().copy_streams().in](Device& device) {
    device.copy(output, received, bytes, stream);
    launch(device, results, stream);
    device.record(*done, stream);
  });
  step.fully_enqueued = true;
}

/// The run is complete when the last copy in, and the last work in the stream of collectives, are complete.
void HierarchicalDeviceRun::record_end() {
  queue_job([last = across_track_.steps.empty() ? nullptr : across_track_.steps.back()->done, done = events_.done,
             stream = slot_.context().stream()](Device& device) {
    if (last != nullptr) device.wait(stream, *last);
    device.record(*done, stream);
  });
  fully_enqueued_ = true;
}

/// Releases the memory of inside phases up to `step`, which the device has completed.
void HierarchicalDeviceRun::release_before(const Step& step) {
  if (step.work == nullptr) return;
  for (; inside_track_.ended <= step.place; ++inside_track_.ended)
    inside_track_.steps[inside_track_.ended]->work.reset();
}

MakeDeviceWork HierarchicalDeviceRun::inside_maker(const Call& call) {
  Device& device = slot_.context().device();
  const int rank = slot_.hierarchy()->local, size = slot_.hierarchy()->local_size();
  if (has_device_collective(call.collective) && device_vendor_agrees(call)) {
    const VendorPlan plan = plan_vendor(call, AverageWay::kUnchanged, rank, size, slot_.devices(DeviceReach::kHost));
    return [&device, &call, plan] { return make_vendor_work(device, call, plan); };
  }
  const Selection selection = select_inside(call, size, slot_.group().endpoint->settings());
  return [&device, rank, size, &call, selection] { return make_scheduled_work(device, rank, size, call, selection); };
}

std::vector<DeviceTask> HierarchicalDeviceRun::tasks_of(const std::vector<PlanCopy>& copies) const {
  std::vector<DeviceTask> tasks;
  for (const PlanCopy& copy : copies) {
    if (copy.count == 0) continue;
    tasks.push_back(DeviceTask::scale(call_.input.dtype, memory_.at(copy.to), memory_.at(copy.from), copy.count));
  }
  return tasks;
}

void HierarchicalDeviceRun::queue_job(std::function<void(Device& device)> work) {
  jobs_.push_back(slot_.context().thread().run(
      [work = std::move(work), &device = slot_.context().device(), has_failed = has_failed_] {
        if (*has_failed) return;
        *has_failed = true;
        work(device);
        *has_failed = false;
      }));
}

std::vector<int> HierarchicalDeviceRun::waits_for() const {
  const bool exchanges =
      across_track_.ended < across_track_.begun && across_track_.steps[across_track_.ended]->exchange != nullptr;
  return exchanges ? across_track_.steps[across_track_.ended]->exchange->waits_for()
                   : slot_.members(DeviceReach::kHost);
}

BufferHazard HierarchicalDeviceRun::withdraw() {
  for (const Step* step : across_track_.steps) {
    if (step->exchange != nullptr) step->exchange->withdraw();
  }
  return BufferHazard::kWritten;
}

}  // namespace farandole
