// SPDX-License-Identifier: Apache-2.0
#include "device/device_operation.h"

#include <fmt/core.h>

#include <utility>

#include "device/device_plan.h"
#include "messages/scheduled_collective.h"

namespace farandole {
namespace {

constexpr auto kGroupCheckInterval = std::chrono::milliseconds(1);

/// Memory of the device that goes back to its pool.
class DeviceScratch {
 public:
  DeviceScratch(Device& device, std::size_t bytes)
      : device_(device), memory_(bytes > 0 ? device.allocate(bytes) : nullptr) {}
  ~DeviceScratch() {
    if (memory_ != nullptr) device_.release(memory_);
  }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  void* data() const { return memory_; }

 private:
  Device& device_;
  void* const memory_;
};

/// A schedule: launches and groups of messages.
class ScheduledWork final : public DeviceWork {
 public:
  ScheduledWork(Device& device, const Group& group, const Call& call, const Selection& selection)
      : execution_(plan_execution(call, selection, group.rank, group.size())),
        memory_(device, device_memory_needed(execution_, call.input.dtype)),
        plan_(make_device_plan(execution_, call, group.size(), memory_.data())) {}

  void enqueue(Device& device, DeviceGroup* devices, StreamView stream) override {
    for (const DevicePlan::Stage& stage : plan_.stages) {
      for (const std::vector<DeviceTask>& launch : stage.launches) device.launch(launch, stream);
      if (!stage.messages.empty()) devices->exchange(stage.messages, stream);
    }
  }

 private:
  const ExecutionPlan execution_;
  const DeviceScratch memory_;
  const DevicePlan plan_;
};

/// The vendor's own collective, between what scales.
class VendorWork final : public DeviceWork {
 public:
  VendorWork(Device& device, const Group& group, const Call& call)
      : call_(call),
        factor_(final_scale(call, group.size())),
        is_staged_(call.prescale != 1.0 ||
                   (call.collective == Collective::kAlltoall && call.input.data == call.output.data)),
        staged_(device, is_staged_ ? call.input.size_in_bytes() : 0),
        is_root_(call.root < 0 || call.root == group.rank) {
    collective_.kind = kind_of(call.collective);
    collective_.input = is_staged_ ? staged_.data() : call.input.data;
    collective_.output = call.output.data;
    collective_.count = call.input.count;
    if (call.collective == Collective::kReduceScatter) collective_.count = call.output.count;
    if (call.collective == Collective::kAlltoall) collective_.count /= static_cast<std::size_t>(group.size());
    collective_.dtype = call.input.dtype;
    collective_.op = call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op;
    collective_.root = call.root;
  }

  void enqueue(Device& device, DeviceGroup* devices, StreamView stream) override {
    if (is_staged_) scale(device, staged_.data(), call_.input, call_.prescale, stream);
    devices->run(collective_, stream);
    if (factor_ != 1.0 && is_root_) scale(device, call_.output.data, call_.output, factor_, stream);
  }

  static DeviceCollective::Kind kind_of(Collective collective) {
    switch (collective) {
      case Collective::kBroadcast:
        return DeviceCollective::Kind::kBroadcast;
      case Collective::kReduce:
        return DeviceCollective::Kind::kReduce;
      case Collective::kAllgather:
        return DeviceCollective::Kind::kAllgather;
      case Collective::kReduceScatter:
        return DeviceCollective::Kind::kReduceScatter;
      case Collective::kAlltoall:
        return DeviceCollective::Kind::kAlltoall;
      default:
        return DeviceCollective::Kind::kAllreduce;
    }
  }

 private:
  static void scale(Device& device, void* output, const ConstBufferView& input, double factor, StreamView stream) {
    DeviceTask task;
    task.kind = factor == 1.0 ? DeviceTask::Kind::kCopy : DeviceTask::Kind::kScale;
    task.dtype = task.output_dtype = input.dtype;
    task.output = output;
    task.left = input.data;
    task.count = input.count;
    task.factor = factor;
    device.launch({&task, 1}, stream);
  }

  const Call& call_;
  const double factor_;
  const bool is_staged_;  // scaled, or overwritten by the output
  const DeviceScratch staged_;
  const bool is_root_;
  DeviceCollective collective_;
};

std::string explain_vendor(Collective, std::size_t, const Group&) {
  return "NCCL's own collective; NCCL has measured what it chooses";
}

}  // namespace

constinit const Method kDeviceVendorMethod{
    .name = "vendor",
    .number = 0xfb,
    .needs = "several ranks, equal parts, and a type and reduction that NCCL has",
    .memory = MemoryKind::kCuda,
    .is_preferred = true,
    .is_made_at_call = true,
    .supports =
        [](Collective collective) {
          return collective != Collective::kBarrier && collective != Collective::kGather &&
                 collective != Collective::kScatter;
        },
    .fits = [](const TuningShape&) { return false; },
    .is_available = [](const SelectionQuery& query, bool) { return query.size > 1 && query.vendor_agrees; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<DeviceOperation>(inputs, /*by_vendor=*/true);
    },
    .explain = explain_vendor,
};

constinit const Method kDeviceScheduleMethod{
    .name = {},
    .number = 0,
    .needs = {},
    .memory = MemoryKind::kCuda,
    .is_made_at_call = true,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape&) { return false; },
    .is_available = [](const SelectionQuery&, bool) { return true; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<DeviceOperation>(inputs, /*by_vendor=*/false);
    },
};

DeviceOperation::DeviceOperation(const MethodInputs& inputs, bool by_vendor)
    : group_(inputs.group),
      slot_(inputs.devices),
      call_(inputs.call),
      selection_(inputs.selection),
      by_vendor_(by_vendor),
      ticket_{inputs.group.id, inputs.sequence} {
  time_ = slot_.context().propose(ticket_);
  try {
    Device& device = slot_.context().device();
    ready_ = device.make_event();
    done_ = device.make_event();
    device.record(*ready_, call_.stream.valid() ? call_.stream : StreamView(nullptr, device.space()));
  } catch (const Error& error) {
    failure_ = error;
  }
}

DeviceOperation::~DeviceOperation() {
  agreement_.reset();
  slot_.context().remove(ticket_);
}

Operation::State DeviceOperation::advance() {
  const Phase before = phase_;
  if (failure_) throw_error(failure_->kind(), failure_->what());
  switch (phase_) {
    case Phase::kAgree:
      if (group_.size() > 1) {
        if (agreement_ == nullptr) begin_agreement();
        const State state = agreement_->advance();
        if (state != State::kDone) return state;
        agreement_.reset();
      }
      slot_.context().agree(ticket_, time_);
      phase_ = Phase::kTurn;
      [[fallthrough]];
    case Phase::kTurn:
      if (!slot_.context().is_next(ticket_)) break;
      phase_ = Phase::kBringUp;
      [[fallthrough]];
    case Phase::kBringUp:
      if (!slot_.bring_up(ticket_.sequence, time_)) break;
      enqueue();
      phase_ = Phase::kEnqueue;
      [[fallthrough]];
    case Phase::kEnqueue:
      if (!enqueuing_->is_done()) break;
      enqueuing_->check();
      phase_ = Phase::kRun;
      [[fallthrough]];
    case Phase::kRun:
      if (!done_->is_complete()) {
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

/// The largest of the ranks' proposals, in host memory.
void DeviceOperation::begin_agreement() {
  Call call;
  call.collective = Collective::kAllreduce;
  call.input = {&time_, 1, DType::kI64};
  call.output = {&time_, 1, DType::kI64};
  call.op = ReduceOp::kMax;
  const Algorithm& doubling = *find_algorithm(Collective::kAllreduce, "recursive_doubling");
  agreement_ = std::make_unique<ScheduledCollective>(group_, call, selected_bytes(call, group_.size()),
                                                     Selection::schedule(doubling, 1), ticket_.sequence);
}

void DeviceOperation::enqueue() {
  DeviceContext& context = slot_.context();
  if (by_vendor_) {
    work_ = std::make_shared<VendorWork>(context.device(), group_, call_);
  } else {
    work_ = std::make_shared<ScheduledWork>(context.device(), group_, call_, selection_);
  }
  // The device's thread works in the order of turns, so that the next operation may have its own.
  enqueuing_ = context.thread().run([work = work_, ready = ready_, done = done_, &device = context.device(),
                                     devices = slot_.devices(), stream = context.stream()] {
    device.wait(stream, *ready);
    work->enqueue(device, devices, stream);
    device.record(*done, stream);
  });
  context.remove(ticket_);
}

void DeviceOperation::check_group(Clock::time_point now) {
  if (now < next_check_ || slot_.devices() == nullptr) return;
  next_check_ = now + kGroupCheckInterval;
  const std::string error = slot_.devices()->asynchronous_error();
  if (!error.empty()) {
    throw DeviceError(fmt::format("device {}: {}", slot_.context().device().info().ordinal, error));
  }
}

std::vector<int> DeviceOperation::waits_for() const {
  if (phase_ == Phase::kAgree && agreement_) return agreement_->waits_for();
  if (phase_ == Phase::kBringUp) return slot_.waits_for();
  return phase_ == Phase::kRun ? group_.members : std::vector<int>{};
}

Aftermath DeviceOperation::withdraw() {
  if (agreement_) return agreement_->withdraw();
  if (phase_ == Phase::kBringUp) return slot_.withdraw();
  if (phase_ != Phase::kEnqueue && phase_ != Phase::kRun) return Aftermath::kNone;
  slot_.context().abandon();
  return Aftermath::kWritten;
}

std::shared_ptr<DeviceEvent> DeviceOperation::enqueued() const {
  return phase_ == Phase::kRun ? done_ : nullptr;
}

}  // namespace farandole
