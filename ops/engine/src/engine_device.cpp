// SPDX-License-Identifier: Apache-2.0
#include "engine_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "farandole/core/reduce.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"
#include "farandole/internal/forked_children.h"
#include "farandole/internal/view_address.h"

namespace farandole {
namespace {

DeviceRuntime& runtime_of(const Communicator& communicator) {
  return *device_runtime(internals(communicator).settings()).runtime;
}

/// Checks the address of a tensor's input or output. @throws InvalidArgument  the device cannot use `memory`
void check_address(const DeviceRuntime& runtime, const LocalTensor& tensor, const void* memory, const char* what,
                   const RequestSpec& spec) {
  const std::string problem = address_problem(runtime, what, {memory, tensor.count(), tensor.dtype, tensor.space});
  if (!problem.empty()) throw InvalidArgument(fmt::format("{}: {}", describe(spec), problem));
}

}  // namespace

Device& EngineDevice::open(const RequestSpec& spec) {
  if (Device* const device = device_.load(std::memory_order_acquire)) return *device;
  const std::lock_guard lock(opening_);
  host_waits_.fetch_add(1, std::memory_order_relaxed);
  try {
    Device& device = internals(communicator_).device();
    device_.store(&device, std::memory_order_release);
    return device;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(describe(spec) + ": " + error.message());
  }
}

void EngineDevice::prepare(LocalRequest& request) {
  const auto is_on_device = [](const LocalTensor& tensor) { return !tensor.space.is_host(); };
  if (std::none_of(request.tensors.begin(), request.tensors.end(), is_on_device)) return;
  Device& device = open(request.spec);
  const DeviceRuntime& runtime = runtime_of(communicator_);
  std::vector<std::pair<void*, std::shared_ptr<DeviceEvent>>> recorded;  // by stream
  for (LocalTensor& tensor : request.tensors) {
    if (!is_on_device(tensor)) continue;
    if (tensor.space != device.space()) {
      throw InvalidArgument(fmt::format("{}: a tensor is in {}, and this rank uses {}; see FARANDOLE_DEVICE",
                                        describe(request.spec), describe(tensor.space), describe(device.space())));
    }
    check_address(runtime, tensor, tensor.input, "input", request.spec);
    if (tensor.output != tensor.input) check_address(runtime, tensor, tensor.output, "output", request.spec);
    const auto same = std::find_if(recorded.begin(), recorded.end(),
                                   [&](const auto& entry) { return entry.first == tensor.stream.handle; });
    if (same != recorded.end() && tensor.ready_handle == nullptr) {
      tensor.ready = same->second;
      continue;
    }
    if (device.is_capturing(tensor.stream)) {
      throw InvalidArgument(describe(request.spec) +
                            ": the tensor's stream is captured into a graph, and the engine needs the host: end the "
                            "capture before the call, or use a Communicator in the caller's device order");
    }
    if (tensor.ready_handle != nullptr) continue;
    tensor.ready = device.make_event(DeviceEvent::Use::kStreams);
    device.record(*tensor.ready, tensor.stream);
    recorded.emplace_back(tensor.stream.handle, tensor.ready);
  }
}

DeviceLane::DeviceLane(Communicator communicator) : communicator_(std::move(communicator)) {}

DeviceLane::~DeviceLane() {
  if (device_ == nullptr) return;
  try {
    use_.record(stream_);
  } catch (const Error&) {
    return;  // the device has failed, so it no longer uses any memory
  }
  if (use_.wait_for_end(internals(communicator_).endpoint().faults())) return;
  keep_until_the_end(std::move(buffers_));
  keep_until_the_end(std::move(pinned_));
  keep_until_the_end(std::move(neutral_));
}

std::shared_ptr<DeviceEvent> DeviceLane::record_end() {
  return device_ == nullptr ? nullptr : record(DeviceEvent::Use::kHost);
}

void DeviceLane::begin(bool is_direct) {
  internals(communicator_).start_directly(is_direct);
  if (device_ != nullptr) return;
  Device& device = internals(communicator_).device();
  stream_ = device.make_stream();
  use_.open(device);
  buffers_ = std::make_unique<FusionBuffers>(communicator_, device.space());
  device_ = &device;
}

std::string DeviceLane::address_problem(std::string_view what, ConstBufferView view) const {
  return farandole::address_problem(runtime_of(communicator_), what, view);
}

void DeviceLane::wait_for_input(const LocalTensor& tensor) {
  if (tensor.ready_handle != nullptr) return device_->wait_for_handle(stream_, tensor.ready_handle);
  if (tensor.ready == last_input_) return;
  device_->wait(stream_, *tensor.ready);
  last_input_ = tensor.ready;
}

void DeviceLane::wait_for_stream(const LocalTensor& tensor) {
  const auto now = device_->make_event(DeviceEvent::Use::kStreams);
  device_->record(*now, tensor.stream);
  device_->wait(stream_, *now);
}

Buffer DeviceLane::take(std::size_t bytes) {
  const std::size_t made = buffers_->made();
  Buffer buffer = buffers_->take(bytes);
  counters_.host_waits += buffers_->made() - made;
  return buffer;
}

void DeviceLane::launch(std::span<const DeviceTask> tasks) {
  if (tasks.empty()) return;
  device_->launch(tasks, stream_);
  ++counters_.kernels;
}

void DeviceLane::fill_neutral(void* output, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t bytes = count * size_in_bytes(dtype);
  if (bytes == 0) return;
  constexpr std::array kZeroIsNeutral{ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kBitOr, ReduceOp::kBitXor};
  if (std::find(kZeroIsNeutral.begin(), kZeroIsNeutral.end(), op) != kZeroIsNeutral.end()) {
    return device_->fill_zero(output, bytes, stream_);
  }
  std::vector<Buffer>& kept = neutral_[{dtype, op}];
  if (kept.empty() || kept.back().count() < bytes) {
    kept.push_back(take_pinned(bytes));
    farandole::fill_neutral(kept.back().view().data, kept.back().count() / size_in_bytes(dtype), dtype, op);
  }
  copy(output, kept.back().view().data, bytes);
}

std::shared_ptr<DeviceEvent> DeviceLane::record(DeviceEvent::Use use) {
  std::shared_ptr<DeviceEvent> event = device_->make_event(use);
  device_->record(*event, stream_);
  return event;
}

Buffer DeviceLane::take_pinned(std::size_t bytes) {
  const auto fits =
      std::find_if(pinned_.begin(), pinned_.end(), [&](const Buffer& buffer) { return buffer.count() >= bytes; });
  if (fits == pinned_.end()) {
    ++counters_.host_waits;
    return internals(communicator_).allocate_pinned(bytes);
  }
  Buffer taken = std::move(*fits);
  pinned_.erase(fits);
  return taken;
}

DeviceCounters DeviceLane::counters() const {
  DeviceCounters counters = counters_;
  counters.host_waits += internals(communicator_).direct_waits();
  return counters;
}

}  // namespace farandole
