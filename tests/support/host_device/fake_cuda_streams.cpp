// SPDX-License-Identifier: Apache-2.0
// The double of libcuda: modules, launches, copies, streams, events.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "fake_calls.h"
#include "fake_devices.h"
#include "fake_exports.h"
#include "fake_faults.h"
#include "fake_kernels.h"
#include "fake_options.h"

// NOLINTBEGIN(performance-no-int-to-ptr): CUDA's driver has addresses as numbers
namespace farandole::fake {

namespace {

// The stream of a call that enqueues there. Null, after a report, if the handle is none of the current device.
Stream* target_of(const char* call, CUstream handle) {
  Device& device = *current_device();
  Stream* const stream = stream_of(handle, device);
  if (stream == nullptr) {
    misuse("{} on {}, which is no stream", call, fmt::ptr(handle));
  } else if (&stream->device != &device) {
    misuse("{} on a stream of device {} while the context of device {} is current", call, stream->device.ordinal,
           device.ordinal);
    return nullptr;
  } else if (stream->is_captured.load(std::memory_order_relaxed)) {
    misuse("{} on a stream that is captured into a graph", call);
    return nullptr;
  }
  return stream;
}

Event* event_of(const char* call, CUevent handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  if (event != nullptr && event->is(Handle::Kind::kEvent)) return event;
  misuse("{} of {}, which is no event, or was destroyed", call, fmt::ptr(handle));
  return nullptr;
}

const void* address_of(CUdeviceptr memory) {
  return reinterpret_cast<const void*>(memory);
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* /*image*/) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  if (option(Option::kFreeSyncs) != 0) current_device()->synchronize();
  *module = reinterpret_cast<CUmodule>(&make_kept<Module>(*current_device()));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const auto* const found = reinterpret_cast<Module*>(module);
  if (found == nullptr || !found->is(Handle::Kind::kModule)) return kInvalidHandle;
  const std::optional<KernelBody> body = find_kernel(name);
  if (!body) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(&make_kept<Function>(found->device, name, *body));
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  constexpr int kMaxThreadsPerBlock = 0;
  const auto* const found = reinterpret_cast<Function*>(function);
  if (found == nullptr || !found->is(Handle::Kind::kFunction)) return kInvalidHandle;
  *value = attribute == kMaxThreadsPerBlock ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  const auto* const kernel = reinterpret_cast<Function*>(function);
  if (kernel == nullptr || !kernel->is(Handle::Kind::kFunction)) return kInvalidHandle;
  Stream* const target = target_of("cuLaunchKernel", stream);
  if (target == nullptr) return kInvalidHandle;
  if (&kernel->device != &target->device) {
    misuse("cuLaunchKernel of {}, which was loaded for device {}, on device {}", kernel->name, kernel->device.ordinal,
           target->device.ordinal);
    return kInvalidHandle;
  }
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  if (!is_valid(shape) || parameters == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto arguments = std::make_shared<cuda::LargestArguments>();
  std::memcpy(arguments.get(), parameters[0], kernel->body.argument_bytes);
  Item item{.call = "cuLaunchKernel"};
  if (!check_launch(*kernel, shape, *arguments, item.uses)) return CUDA_ERROR_INVALID_VALUE;
  translate_for_streams(*arguments);
  item.work = [body = kernel->body, shape, arguments](Random& random) { run_kernel(body, shape, *arguments, random); };
  target->device.enqueue(*target, std::move(item));
  return CUDA_SUCCESS;
}

// With ordinary memory of the host CUDA may or may not wait for the copy, so the double does both.
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const queue = target_of("cuMemcpyAsync", stream);
  if (queue == nullptr) return kInvalidHandle;
  const int device = queue->device.ordinal;
  Item item{.call = "cuMemcpyAsync"};
  const bool are_known =
      item.uses.add("cuMemcpyAsync", device, Reach::kAnywhere, {address_of(target), bytes, true, "target"}) &&
      item.uses.add("cuMemcpyAsync", device, Reach::kAnywhere, {address_of(source), bytes, false, "source"});
  if (!are_known) return CUDA_ERROR_INVALID_VALUE;
  thread_local Random coin = random_of(device, this_thread_number());
  const bool waits = (bytes > 0 && !item.uses.has_device()) || (item.uses.has_pageable() && coin.one_in(2));
  item.work = [to = stream_address(target), from = stream_address(source), bytes](Random& /*random*/) {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  };
  queue->device.enqueue(*queue, std::move(item));
  driver_lock.unlock();
  if (waits) queue->wait(queue->pushed());
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, std::size_t bytes, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const queue = target_of("cuMemsetD8Async", stream);
  if (queue == nullptr) return kInvalidHandle;
  Item item{.call = "cuMemsetD8Async"};
  const Access target{address_of(memory), bytes, true, "target"};
  if (!item.uses.add("cuMemsetD8Async", queue->device.ordinal, Reach::kDevice, target)) return CUDA_ERROR_INVALID_VALUE;
  item.work = [to = stream_address(memory), value, bytes](Random& /*random*/) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
  };
  queue->device.enqueue(*queue, std::move(item));
  return CUDA_SUCCESS;
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr memory, std::uint32_t value, unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const queue = target_of("cuStreamWriteValue32", stream);
  if (queue == nullptr) return kInvalidHandle;
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || memory % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
  Item item{.call = "cuStreamWriteValue32"};
  const Access target{address_of(memory), sizeof value, true, "target"};
  if (!item.uses.add("cuStreamWriteValue32", queue->device.ordinal, Reach::kDevice, target)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  item.work = [word = reinterpret_cast<std::uint32_t*>(stream_address(memory)), value](Random& /*random*/) {
    std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_release);
  };
  queue->device.enqueue(*queue, std::move(item));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = reinterpret_cast<CUstream>(&current_device()->make_stream((flags & CU_STREAM_NON_BLOCKING) == 0));
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  const Stream* const found = stream_of(stream, *current_device());
  if (found == nullptr) {
    misuse("cuStreamSynchronize of {}, which is no stream", fmt::ptr(stream));
    return kInvalidHandle;
  }
  driver_lock.unlock();
  found->wait(found->pushed());
  return is_device_lost() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  const Stream* const found = stream_of(stream, *current_device());
  if (found == nullptr) {
    misuse("cuStreamQuery of {}, which is no stream", fmt::ptr(stream));
    return kInvalidHandle;
  }
  if (is_device_lost()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return found->is_idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Device& device = *current_device();
  const Stream* const found = stream_of(stream, device);
  if (found == nullptr) {
    misuse("cuStreamIsCapturing of {}, which is no stream", fmt::ptr(stream));
    return kInvalidHandle;
  }
  if (found == &device.legacy_stream() && device.captures_blocking_stream()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = found->is_captured.load(std::memory_order_relaxed) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                               : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const target = target_of("cuStreamWaitEvent", stream);
  const Event* const found = event_of("cuStreamWaitEvent", event);
  if (target == nullptr || found == nullptr) return kInvalidHandle;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Mark* const mark = found->mark();
  if (mark == nullptr) {
    misuse("cuStreamWaitEvent for an event that was never recorded, for which no stream waits");
    return CUDA_SUCCESS;
  }
  target->device.enqueue(*target, {.call = "cuStreamWaitEvent", .wait_for = mark});
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned /*flags*/) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  *event = reinterpret_cast<CUevent>(&make_kept<Event>(*current_device()));
  return CUDA_SUCCESS;
}

// Also while its record is still to come: streams that wait for it go on waiting.
CUresult cuEventDestroy_v2(CUevent event) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  Event* const found = event_of("cuEventDestroy", event);
  if (found == nullptr) return kInvalidHandle;
  found->die();
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const target = target_of("cuEventRecord", stream);
  Event* const found = event_of("cuEventRecord", event);
  if (target == nullptr || found == nullptr) return kInvalidHandle;
  if (&found->device != &target->device) {
    misuse("cuEventRecord of an event of device {} on a stream of device {}", found->device.ordinal,
           target->device.ordinal);
    return kInvalidHandle;
  }
  found->record([target](Mark* mark) { target->device.enqueue(*target, {.call = "cuEventRecord", .reach = mark}); });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  check_captures(call_site);
  const Event* const found = event_of("cuEventQuery", event);
  if (found == nullptr) return kInvalidHandle;
  const Mark* const mark = found->mark();
  return mark == nullptr || mark->is_reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

}  // extern "C"

}  // namespace farandole::fake
// NOLINTEND(performance-no-int-to-ptr)
