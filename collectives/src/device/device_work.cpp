// SPDX-License-Identifier: Apache-2.0
#include "device/device_work.h"

#include <utility>

#include "device/device_plan.h"
#include "device/device_scratch.h"
#include "farandole/internal/device_collective.h"

namespace farandole {
namespace {

/// Up to this number of ranks, all pairs are connected before the first schedule runs. In larger groups NCCL connects
/// two ranks at their first message. The vendor's collectives make their own connections.
constexpr int kMaxConnectedRanks = 16;

class ScheduledWork final : public DeviceWork {
 public:
  /// @param owned  memory of the work, or null if `memory` is the caller's
  ScheduledWork(const Call& call, const ExecutionPlan& plan, int size, void* memory, DeviceScratch owned)
      : plan_(make_device_plan(plan, call, memory)), size_(size), owned_(std::move(owned)) {}

  void enqueue(Device& device, DeviceGroup* devices, StreamView stream) override {
    if (devices != nullptr && size_ <= kMaxConnectedRanks) devices->connect(stream);
    for (const DevicePlan::Stage& stage : plan_.stages) {
      for (const std::vector<DeviceTask>& launch : stage.launches) device.launch(launch, stream);
      if (!stage.messages.empty()) devices->exchange(stage.messages, stream);
    }
  }

 private:
  const DevicePlan plan_;
  const int size_;
  const DeviceScratch owned_;
};

void launch(Device& device, const DeviceTask& task, StreamView stream) {
  device.launch({&task, 1}, stream);
}

/// Enqueues the kernels before the vendor's collective. They write the elements that the collective combines to
/// `target`.
void prepare_input(Device& device, const Call& call, const VendorPlan& plan, void* target, StreamView stream) {
  const auto& [data, count, dtype, space] = call.input;
  const void* from = data;
  if (!plan.is_ordered || plan.prescale != 1.0) {
    launch(device, DeviceTask::scale(dtype, target, from, count, plan.prescale), stream);
    from = target;
  }
  if (!plan.is_ordered) return;
  launch(device, {DeviceTask::Kind::kOrder, dtype, dtype, call.op, target, from, nullptr, count}, stream);
}

class VendorWork final : public DeviceWork {
 public:
  /// @param owned  memory of the work, or null if `memory` is the caller's
  VendorWork(const Call& call, const VendorPlan& plan, void* memory, DeviceScratch owned)
      : call_(call), plan_(plan), memory_(memory), owned_(std::move(owned)) {
    if (plan.is_staged) plan_.collective.input = memory;
  }

  void enqueue(Device& device, DeviceGroup* devices, StreamView stream) override {
    if (plan_.is_staged) prepare_input(device, call_, plan_, memory_, stream);
    enqueue_vendor(device, *devices, call_, plan_, stream);
  }

 private:
  const Call& call_;
  VendorPlan plan_;
  void* const memory_;
  const DeviceScratch owned_;
};

class MessageWork final : public DeviceWork {
 public:
  MessageWork(const Call& call, int rank) : call_(call), rank_(rank) {}
  void enqueue(Device&, DeviceGroup* devices, StreamView stream) override {
    enqueue_message(*devices, call_, rank_, stream);
  }

 private:
  const Call& call_;
  const int rank_;
};

/// A run that queues a single job, which makes the work and enqueues all of it. Since the device's thread runs jobs in
/// order, the run is fully enqueued from the beginning: the next operation's turn may begin.
class SingleEnqueueRun final : public DeviceRun {
 public:
  SingleEnqueueRun(DeviceContext& context, DeviceGroup* devices, MakeDeviceWork make, const DeviceEvents& events)
      : enqueuing_(context.thread().run(
            [made = made_, make = std::move(make)] { made->work = make(); },
            [made = made_, events, &device = context.device(), devices, stream = context.stream()] {
              made->may_have_enqueued = true;
              device.wait(stream, *events.ready);
              made->work->enqueue(device, devices, stream);
              device.record(*events.done, stream);
            })) {}

  State advance() override {
    if (!enqueuing_->is_done()) return State::kWaiting;
    enqueuing_->check();
    return State::kDone;
  }
  bool fully_enqueued() const override { return true; }
  bool may_have_enqueued() const override { return !enqueuing_->is_done() || made_->may_have_enqueued; }
  std::vector<int> waits_for() const override { return {}; }
  BufferHazard withdraw() override { return BufferHazard::kNone; }

 private:
  /// Result of the job. Belongs to the device's thread until the job is done.
  struct Made {
    std::shared_ptr<DeviceWork> work;
    bool may_have_enqueued = false;
  };
  const std::shared_ptr<Made> made_ = std::make_shared<Made>();
  const std::shared_ptr<const DeviceJob> enqueuing_;
};

}  // namespace

bool device_vendor_agrees(const Call& call) {
  return !call.is_uneven() && device_vendor_agrees(call.collective, call.input.dtype, call.op);
}

VendorPlan plan_vendor(const Call& call, AverageWay way, int rank, int size, const DeviceGroup* devices) {
  VendorPlan plan;
  plan.collective.collective = call.collective;
  plan.collective.input = call.input.data;
  plan.collective.output = call.output.data;
  plan.collective.count = call.input.count;
  if (call.collective == Collective::kReduceScatter) plan.collective.count = call.output.count;
  if (call.collective == Collective::kAlltoall) plan.collective.count /= static_cast<std::size_t>(size);
  plan.collective.dtype = call.input.dtype;
  plan.collective.op = combining_op(call);
  plan.collective.root = call.root;
  plan.prescale = call.prescale;
  const bool divides_last =
      call.input.dtype == DType::kF16 && call.op == ReduceOp::kAverage && way != AverageWay::kDividedFirst;
  const bool is_in_reduction = reduces(call.collective) && devices != nullptr && !divides_last &&
                               devices->scales(call.input.dtype, plan.collective.op, call.final_scale);
  if (is_in_reduction) {
    plan.collective.factor = call.final_scale;
  } else {
    const Call sum = way == AverageWay::kDividedFirst ? divided_sum(call, size) : call;
    plan.prescale = sum.prescale;
    plan.final_scale = call.root < 0 || call.root == rank ? sum.final_scale : 1.0;
  }
  plan.is_ordered = is_ordered_by_device(call.collective, call.input.dtype, call.op);
  if (plan.is_ordered) plan.collective.dtype = call.input.dtype == DType::kF64 ? DType::kI64 : DType::kI32;
  // Only in an allreduce the output is as long as the input on every rank.
  const bool is_prepared_in_output = plan.is_ordered && call.collective == Collective::kAllreduce;
  if (is_prepared_in_output) plan.collective.input = call.output.data;
  const bool is_alltoall_in_place = call.collective == Collective::kAlltoall && call.input.data == call.output.data;
  plan.is_staged = !is_prepared_in_output && (plan.prescale != 1.0 || plan.is_ordered || is_alltoall_in_place);
  return plan;
}

void enqueue_vendor(Device& device, DeviceGroup& devices, const Call& call, const VendorPlan& plan, StreamView stream) {
  if (plan.is_ordered && !plan.is_staged) prepare_input(device, call, plan, call.output.data, stream);
  devices.run(plan.collective, stream);
  const auto& [data, count, dtype, space] = call.output;
  if (plan.is_ordered) {
    launch(device, {DeviceTask::Kind::kRestore, dtype, dtype, call.op, data, data, nullptr, count}, stream);
  }
  if (plan.final_scale != 1.0) launch(device, DeviceTask::scale(dtype, data, data, count, plan.final_scale), stream);
}

std::shared_ptr<DeviceWork> make_vendor_work(Device& device, const Call& call, const VendorPlan& plan) {
  DeviceScratch memory = device_scratch(device, plan.is_staged ? call.input.size_in_bytes() : 0);
  void* const address = memory.get();
  return std::make_shared<VendorWork>(call, plan, address, std::move(memory));
}

std::shared_ptr<DeviceWork> make_vendor_work_in(void* memory, const Call& call, const VendorPlan& plan) {
  return std::make_shared<VendorWork>(call, plan, memory, nullptr);
}

std::shared_ptr<DeviceWork> make_scheduled_work(Device& device, int rank, int size, const Call& call,
                                                const Selection& selection) {
  const ExecutionPlan plan = plan_execution(call, selection, rank, size);
  DeviceScratch memory = device_scratch(device, device_memory_needed(plan, call.input.dtype));
  void* const address = memory.get();
  return std::make_shared<ScheduledWork>(call, plan, size, address, std::move(memory));
}

std::shared_ptr<DeviceWork> make_scheduled_work_in(void* memory, int size, const Call& call,
                                                   const ExecutionPlan& plan) {
  return std::make_shared<ScheduledWork>(call, plan, size, memory, nullptr);
}

void enqueue_message(DeviceGroup& devices, const Call& call, int rank, StreamView stream) {
  using Kind = DeviceMessage::Kind;
  const Kind kind = rank == call.root ? Kind::kSend : Kind::kReceive;
  const DeviceMessage message{kind, 1 - rank, call.output.data, call.output.size_in_bytes()};
  devices.exchange({&message, 1}, stream);
}

std::shared_ptr<DeviceWork> make_message_work(const Call& call, int rank) {
  return std::make_shared<MessageWork>(call, rank);
}

std::unique_ptr<DeviceRun> make_single_enqueue_run(DeviceContext& context, DeviceGroup* devices, MakeDeviceWork make,
                                                   const DeviceEvents& events) {
  return std::make_unique<SingleEnqueueRun>(context, devices, std::move(make), events);
}

}  // namespace farandole
