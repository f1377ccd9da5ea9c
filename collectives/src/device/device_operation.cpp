// SPDX-License-Identifier: Apache-2.0
#include "device/device_operation.h"

#include <fmt/core.h>

#include "device/device_average.h"
#include "device/device_hierarchy.h"
#include "messages/scheduled_collective.h"
#include "operation/average.h"

namespace farandole {
namespace {

constexpr auto kGroupCheckInterval = std::chrono::milliseconds(1);

std::string explain_vendor(Collective, std::size_t, const Group&) {
  return "NCCL's own collective; NCCL has measured what it chooses";
}

std::string explain_hierarchical_devices(Collective, std::size_t, const Group& group) {
  return fmt::format(
      "NCCL inside each host; across hosts ranks of each host, as many as the smallest one has, each exchange a part "
      "with their counterparts by messages, in slices of {} bytes through pinned memory",
      group.endpoint->settings().devices.slice_bytes);
}

template <DeviceOperation::Way kWay>
std::unique_ptr<Operation> make_device_operation(const MethodInputs& inputs) {
  return std::make_unique<DeviceOperation>(inputs, kWay);
}

}  // namespace

constinit const Method kDeviceVendorMethod{
    .name = "vendor",
    .number = 0xfb,
    .needs = "several ranks, equal parts, and a type and reduction that NCCL has",
    .memory = MemoryKind::kCuda,
    .is_preferred = true,
    .created_before_comparison = true,
    .supports = has_device_collective,
    .fits = [](const TuningShape& shape) { return shape.ranks > 1; },
    .is_available = [](const SelectionQuery& query, bool) { return query.size > 1 && query.vendor_agrees; },
    .make = make_device_operation<DeviceOperation::Way::kVendor>,
    .explain = explain_vendor,
};

// `vendor` is preferred: NCCL crosses hosts itself, and nobody has measured which is faster. Whether NCCL can connect
// the hosts at all shows only in the first operation's turn, too late for a selection that all ranks must make alike.
constinit const Method kDeviceHierarchicalMethod{
    .name = "hierarchical",
    .number = 0xf9,
    .needs = "several hosts",
    .memory = MemoryKind::kCuda,
    .created_before_comparison = true,
    .supports = [](Collective collective) { return collective != Collective::kBarrier; },
    .fits = [](const TuningShape& shape) { return shape.hosts > 1; },
    // A plan needs the counts of all ranks; in an alltoall with counts no rank knows them.
    .is_available = [](const SelectionQuery& query, bool) { return query.hosts > 1 && query.bytes != kUnknownBytes; },
    .make = make_device_operation<DeviceOperation::Way::kHierarchical>,
    .explain = explain_hierarchical_devices,
};

constinit const Method kDeviceScheduleMethod{
    .name = {},
    .number = 0,
    .needs = {},
    .memory = MemoryKind::kCuda,
    .created_before_comparison = true,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape&) { return false; },
    .is_available = [](const SelectionQuery&, bool) { return true; },
    .make = make_device_operation<DeviceOperation::Way::kSchedule>,
};

constinit const Method kDeviceMessageMethod{
    .name = "message",
    .number = Descriptor::kMessage,
    .needs = "two ranks",
    .memory = MemoryKind::kCuda,
    .created_before_comparison = true,
    .supports = [](Collective collective) { return collective == Collective::kBroadcast; },
    .fits = [](const TuningShape& shape) { return shape.ranks == 2; },
    .is_available = [](const SelectionQuery& query, bool) { return query.size == 2; },
    .make = make_device_operation<DeviceOperation::Way::kMessage>,
};

DeviceOperation::DeviceOperation(const MethodInputs& inputs, Way way)
    : group_(inputs.group),
      slot_(inputs.devices),
      divided_sum_(way != Way::kVendor && average_way(inputs.prepared.call, group_) == AverageWay::kDividedFirst
                       ? std::make_unique<const KeptCall>(divided_sum(inputs.prepared.call, group_.size()))
                       : nullptr),
      call_(divided_sum_ ? *divided_sum_ : inputs.prepared.call),
      selection_(inputs.prepared.selection),
      way_(way),
      ticket_{inputs.group.id, inputs.sequence} {
  slot_.context().add(ticket_);
  DeviceBlocks& blocks = slot_.context().blocks();
  blocks.note_use(call_.input.data, call_.input.size_in_bytes(), use_);
  blocks.note_use(call_.output.data, call_.output.size_in_bytes(), use_);
  try {
    Device& device = slot_.context().device();
    events_ = {device.make_event(DeviceEvent::Use::kStreams), device.make_event(DeviceEvent::Use::kHost)};
    device.record(*events_.ready, call_.stream.valid() ? call_.stream : StreamView(nullptr, device.space()));
  } catch (const Error& error) {
    failure_ = error;
  }
}

DeviceOperation::~DeviceOperation() {
  agreement_.reset();
  slot_.context().remove(ticket_);
  if (run_ != nullptr) {
    run_.reset();
    slot_.context().end_operation();
  }
  use_.reset();
  slot_.context().blocks().collect();
}

Operation::State DeviceOperation::advance() {
  const Phase before = phase_;
  if (failure_) throw_error(failure_->kind(), failure_->message());
  switch (phase_) {
    case Phase::kMeet:
      if (!group_.compares) {
        if (const State state = advance_agreement(); state != State::kDone) return state;
      }
      phase_ = Phase::kPropose;
      [[fallthrough]];
    case Phase::kPropose: {
      const std::optional<DeviceOrder::Time> proposed = slot_.context().propose(ticket_);
      if (!proposed) break;
      time_ = *proposed;
      phase_ = Phase::kAgree;
      [[fallthrough]];
    }
    case Phase::kAgree:
      if (const State state = advance_agreement(); state != State::kDone) {
        return phase_ == before ? state : State::kMoved;
      }
      slot_.context().agree(ticket_, time_);
      phase_ = Phase::kTurn;
      [[fallthrough]];
    case Phase::kTurn:
      if (!slot_.context().is_next(ticket_)) break;
      phase_ = Phase::kBringUp;
      [[fallthrough]];
    case Phase::kBringUp:
      if (!slot_.bring_up(reach(), ticket_.sequence, time_)) break;
      slot_.context().blocks().collect();  // the run needs memory
      run_ = make_run();
      slot_.context().begin_operation();
      phase_ = Phase::kEnqueue;
      [[fallthrough]];
    case Phase::kEnqueue:
      if (const State state = advance_run(); state != State::kDone) return phase_ == before ? state : State::kMoved;
      phase_ = Phase::kRun;
      [[fallthrough]];
    case Phase::kRun:
      if (!events_.done->is_complete()) {
        check_group(Clock::now());
        break;
      }
      phase_ = Phase::kDone;
      [[fallthrough]];
    case Phase::kDone:
      return State::kDone;
  }
  return phase_ == before ? State::kWaiting : State::kMoved;
}

/// Turns `time_` into the maximum of all ranks' times, by an allreduce of messages in host memory.
Operation::State DeviceOperation::advance_agreement() {
  if (group_.size() == 1) return State::kDone;
  if (agreement_ == nullptr) begin_agreement();
  const State state = agreement_->advance();
  if (state == State::kDone) agreement_.reset();
  return state;
}

void DeviceOperation::begin_agreement() {
  Call call;
  call.collective = Collective::kAllreduce;
  call.input = {&time_, 1, DType::kI64};
  call.output = {&time_, 1, DType::kI64};
  call.op = ReduceOp::kMax;
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  agreement_ = std::make_unique<ScheduledCollective>(group_, call, PreparedCall(call, group_.size()).bytes,
                                                     Selection::schedule(doubling, 1), ticket_.sequence);
}

std::unique_ptr<DeviceRun> DeviceOperation::make_run() {
  if (average_way(call_, group_) != AverageWay::kWideSum) return make_run_of(call_, events_);
  return std::make_unique<DeviceAverageRun>(
      slot_.context(), call_, events_,
      [this](const Call& sum, const DeviceEvents& events) { return make_run_of(sum, events); });
}

std::unique_ptr<DeviceRun> DeviceOperation::make_run_of(const Call& call, const DeviceEvents& events) {
  DeviceContext& context = slot_.context();
  switch (way_) {
    case Way::kVendor:
      return make_single_enqueue_run(
          context, slot_.devices(reach()),
          [&device = context.device(), &call,
           plan = plan_vendor(call, average_way(call, group_), group_.rank, group_.size(), slot_.devices(reach()))] {
            return make_vendor_work(device, call, plan);
          },
          events);
    case Way::kHierarchical:
      return std::make_unique<HierarchicalDeviceRun>(slot_, call, ticket_.sequence, events);
    case Way::kMessage:
      return make_single_enqueue_run(
          context, slot_.devices(reach()), [&call, rank = group_.rank] { return make_message_work(call, rank); },
          events);
    case Way::kSchedule:
      break;
  }
  return make_single_enqueue_run(
      context, slot_.devices(reach()),
      [&device = context.device(), rank = group_.rank, size = group_.size(), &call, &selection = selection_] {
        return make_scheduled_work(device, rank, size, call, selection);
      },
      events);
}

Operation::State DeviceOperation::advance_run() {
  const State state = run_->advance();
  if (run_->fully_enqueued()) {
    slot_.context().remove(ticket_);
    use_->is_enqueued.store(true, std::memory_order_relaxed);
  }
  if (state == State::kWaiting) check_group(Clock::now());
  return state;
}

void DeviceOperation::check_group(Clock::time_point now) {
  DeviceGroup* const devices = slot_.devices(reach());
  if (now < next_check_ || devices == nullptr) return;
  next_check_ = now + kGroupCheckInterval;
  slot_.context().check(*devices);
}

std::vector<int> DeviceOperation::waits_for() const {
  switch (phase_) {
    case Phase::kMeet:
    case Phase::kAgree:
      return agreement_ ? agreement_->waits_for() : std::vector<int>{};
    case Phase::kBringUp:
      return slot_.waits_for();
    case Phase::kEnqueue:
      return run_->waits_for();
    case Phase::kRun:
      return slot_.members(reach());
    default:
      return {};
  }
}

BufferHazard DeviceOperation::withdraw() {
  if (agreement_) return agreement_->withdraw();
  if (phase_ == Phase::kBringUp) return slot_.withdraw();
  if (phase_ != Phase::kEnqueue && phase_ != Phase::kRun) return BufferHazard::kNone;
  run_->withdraw();  // ignore the result: kWritten below keeps the whole run
  if (!run_->may_have_enqueued()) return BufferHazard::kNone;
  slot_.context().abandon();
  return BufferHazard::kWritten;
}

std::shared_ptr<DeviceEvent> DeviceOperation::enqueued() const {
  return phase_ == Phase::kRun ? events_.done : nullptr;
}

}  // namespace farandole
