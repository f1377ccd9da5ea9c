// SPDX-License-Identifier: Apache-2.0
#include "device/device_average.h"

#include <utility>

#include "farandole/internal/average.h"

namespace farandole {
namespace {

DeviceTask cast(DType from, const void* input, DType to, void* output, std::size_t count) {
  return {DeviceTask::Kind::kCast, from, to, ReduceOp::kSum, output, input, nullptr, count, 1.0};
}

std::size_t wide_bytes(const ConstBufferView& elements) {
  return elements.count * size_in_bytes(sum_type(elements.dtype));
}

}  // namespace

DeviceAverageRun::Memory::Memory(Device& device, const Call& call)
    : scaled(device_scratch(device, call.prescale == 1.0 ? 0 : call.input.size_in_bytes())),
      input(device_scratch(device, wide_bytes(call.input))),
      output(device_scratch(device, call.collective == Collective::kAllreduce ? 0 : wide_bytes(call.output))) {}

DeviceAverageRun::DeviceAverageRun(DeviceContext& context, const Call& call, const DeviceEvents& events, MakeRun make)
    : context_(context),
      call_(call),
      events_(events),
      make_(std::move(make)),
      sum_events_{context.device().make_event(DeviceEvent::Use::kStreams),
                  context.device().make_event(DeviceEvent::Use::kHost)},
      memory_(std::make_shared<std::unique_ptr<const Memory>>()) {
  Device& device = context_.device();
  widening_ = context_.thread().run(
      [memory = memory_, &call = call_, &device] { *memory = std::make_unique<const Memory>(device, call); },
      [memory = memory_, &call = call_, &device, after = events_.ready, done = sum_events_.ready,
       stream = context_.stream()] {
        device.wait(stream, *after);
        widen(device, call, **memory, stream);
        device.record(*done, stream);
      });
}

void DeviceAverageRun::widen(Device& device, const Call& call, const Memory& memory, StreamView stream) {
  const DType dtype = call.input.dtype;
  const void* from = call.input.data;
  // Two launches: the cast reads the memory that the scaling writes.
  const auto launch = [&](const DeviceTask& task) { device.launch({&task, 1}, stream); };
  if (memory.scaled != nullptr) {
    launch(DeviceTask::scale(dtype, memory.scaled.get(), from, call.input.count, call.prescale));
    from = memory.scaled.get();
  }
  launch(cast(dtype, from, sum_type(dtype), memory.input.get(), call.input.count));
}

std::vector<DeviceTask> DeviceAverageRun::narrowing_tasks() const {
  const BufferView& sums = sum_call_->output;
  std::vector<DeviceTask> tasks;
  if (call_.final_scale != 1.0) {
    tasks.push_back(DeviceTask::scale(sums.dtype, sums.data, sums.data, sums.count, call_.final_scale));
  }
  tasks.push_back(cast(sums.dtype, sums.data, call_.output.dtype, call_.output.data, sums.count));
  return tasks;
}

Operation::State DeviceAverageRun::advance() {
  if (sum_ == nullptr) {
    if (!widening_->is_done()) return State::kWaiting;
    widening_->check();
    sum_call_.emplace(wide_sum(call_, (*memory_)->input.get(), (*memory_)->sums()));
    sum_ = make_(*sum_call_, sum_events_);
    return State::kMoved;
  }
  if (narrowing_ == nullptr) {
    if (const State state = sum_->advance(); state != State::kDone) return state;
    narrowing_ = context_.thread().run(
        [tasks = narrowing_tasks(), done = events_.done, stream = context_.stream(), &device = context_.device()] {
          for (const DeviceTask& task : tasks) device.launch({&task, 1}, stream);
          device.record(*done, stream);
        });
    return State::kMoved;
  }
  if (!narrowing_->is_done()) return State::kWaiting;
  narrowing_->check();
  return State::kDone;
}

BufferHazard DeviceAverageRun::withdraw() {
  // Ignore the sum's hazard: kWritten is the worst, and makes the owner keep this run, and `sum_` with it, until exit.
  if (sum_ != nullptr) sum_->withdraw();
  return BufferHazard::kWritten;
}

}  // namespace farandole
