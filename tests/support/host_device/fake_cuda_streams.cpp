// SPDX-License-Identifier: Apache-2.0
// The double of libcuda: modules, launches, copies, streams, events.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "fake_calls.h"
#include "fake_devices.h"
#include "fake_exports.h"
#include "fake_faults.h"
#include "fake_graphs.h"
#include "fake_kernels.h"
#include "fake_options.h"

// NOLINTBEGIN(performance-no-int-to-ptr): CUDA's driver has addresses as numbers
namespace farandole::fake {

namespace {

Event* event_of(const char* call, CUevent handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  if (event != nullptr && event->is(Handle::Kind::kEvent)) return event;
  misuse("{} of {}, which is no event, or was destroyed", call, fmt::ptr(handle));
  return nullptr;
}

const void* address_of(CUdeviceptr memory) {
  return reinterpret_cast<const void*>(memory);
}

// Checks that the stream is not being captured, for a call that CUDA then forbids. If it is, reports a misuse,
// invalidates the capture and returns an error.
CUresult check_not_captured(const char* call, const Stream& stream) {
  Capture* const capture = stream.capture();
  if (capture == nullptr) return CUDA_SUCCESS;
  misuse("{} of a stream that is being captured into a graph, which invalidates the capture", call);
  capture->invalidate();
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Waits in a stream that is being captured, or for an event that was recorded in a capture, or both. The capture of the
// stream, or `record`, may be null.
CUresult wait_in_capture(Stream& stream, const CapturedRecord* record) {
  Capture* const capture = stream.capture();
  const auto refuse = [&](CUresult error, const char* why) {
    misuse("cuStreamWaitEvent in stream {} for an event that was recorded {}", stream.serial, why);
    if (capture != nullptr) capture->invalidate();
    return error;
  };
  if (record == nullptr) {
    return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "outside of the capture of the stream, which invalidates it");
  }
  if (record->capture->has_ended()) return refuse(CUDA_ERROR_CAPTURED_EVENT, "in a capture that has ended");
  if (!record->capture->is_valid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (capture != nullptr && capture != record->capture) {
    record->capture->invalidate();
    return refuse(CUDA_ERROR_STREAM_CAPTURE_MERGE, "in another capture, which invalidates both");
  }
  if (&stream == &stream.device.legacy_stream()) {
    record->capture->invalidate();
    return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "in a capture, which the default stream cannot join");
  }
  record->capture->wait(stream, *record);
  return CUDA_SUCCESS;
}

// Finds the mark whose time cuEventElapsedTime reads.
CUresult find_time_of(const Event& event, const Mark*& mark) {
  const auto refuse = [](CUresult error, const char* why) {
    misuse("cuEventElapsedTime of an event that {}", why);
    return error;
  };
  if (!event.has_time) return refuse(kInvalidHandle, "was made with CU_EVENT_DISABLE_TIMING");
  if (event.captured() != nullptr) return refuse(kInvalidHandle, "was last recorded in a capture");
  mark = event.mark();
  if (mark == nullptr) return refuse(kInvalidHandle, "was never recorded");
  return mark->is_reached() ? CUDA_SUCCESS : refuse(CUDA_ERROR_NOT_READY, "is not complete");
}

}  // namespace

CUresult find_target(const char* call, CUstream handle, Stream*& target) {
  Device& device = *current_device();
  target = stream_of(handle, device);
  if (target == nullptr) {
    misuse("{} on {}, which is no stream", call, fmt::ptr(handle));
    return kInvalidHandle;
  }
  if (&target->device != &device) {
    misuse("{} on a stream of device {} while the context of device {} is current", call, target->device.ordinal,
           device.ordinal);
    return kInvalidHandle;
  }
  if (const Capture* const capture = target->capture()) {
    return capture->is_valid() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (Capture* const capture = device.capture_of_blocking_stream(); capture && target == &device.legacy_stream()) {
    misuse("{} on the default stream, which would wait for a stream that is being captured", call);
    capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

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
  Stream* target = nullptr;
  if (const CUresult failed = find_target("cuLaunchKernel", stream, target); failed != CUDA_SUCCESS) return failed;
  if (&kernel->device != &target->device) {
    misuse("cuLaunchKernel of {}, which was loaded for device {}, on device {}", kernel->name, kernel->device.ordinal,
           target->device.ordinal);
    return kInvalidHandle;
  }
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  if (!is_valid(shape) || parameters == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto arguments = std::make_shared<LaunchArguments>(arguments_at(kernel->body, parameters[0]));
  Item item{.call = "cuLaunchKernel"};
  if (!check_launch(*kernel, shape, *arguments, item.uses)) return CUDA_ERROR_INVALID_VALUE;
  translate_for_streams(*arguments);
  item.work = [body = kernel->body, shape, arguments](Random& random) { run_kernel(body, shape, *arguments, random); };
  target->device.enqueue(*target, std::move(item));
  return CUDA_SUCCESS;
}

// If ordinary host memory is involved, CUDA may or may not wait for the copy, so the double does either.
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* queue = nullptr;
  if (const CUresult failed = find_target("cuMemcpyAsync", stream, queue); failed != CUDA_SUCCESS) return failed;
  const int device = queue->device.ordinal;
  Item item{.call = "cuMemcpyAsync"};
  const bool are_known =
      item.uses.add("cuMemcpyAsync", device, Reach::kAnywhere, {address_of(target), bytes, true, "target"}) &&
      item.uses.add("cuMemcpyAsync", device, Reach::kAnywhere, {address_of(source), bytes, false, "source"});
  if (!are_known) return CUDA_ERROR_INVALID_VALUE;
  thread_local Random coin = random_of(device, this_thread_number());
  const bool may_wait = (bytes > 0 && !item.uses.has_device()) || (item.uses.has_pageable() && coin.one_in(2));
  const bool waits = may_wait && queue->capture() == nullptr;
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
  Stream* queue = nullptr;
  if (const CUresult failed = find_target("cuMemsetD8Async", stream, queue); failed != CUDA_SUCCESS) return failed;
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
  Stream* queue = nullptr;
  if (const CUresult failed = find_target("cuStreamWriteValue32", stream, queue); failed != CUDA_SUCCESS) return failed;
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

// The stream still finishes its items; a later use of the handle is reported.
CUresult cuStreamDestroy_v2(CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* const found = stream_of(stream, *current_device());
  if (found == nullptr || found == &current_device()->legacy_stream()) {
    misuse("cuStreamDestroy of {}, which is no stream of the program, or was destroyed", fmt::ptr(stream));
    return kInvalidHandle;
  }
  if (const CUresult failed = check_not_captured("cuStreamDestroy", *found); failed != CUDA_SUCCESS) return failed;
  found->die();
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  const Stream* const found = stream_of(stream, *current_device());
  if (found == nullptr) {
    misuse("cuStreamSynchronize of {}, which is no stream", fmt::ptr(stream));
    return kInvalidHandle;
  }
  if (const CUresult failed = check_not_captured("cuStreamSynchronize", *found); failed != CUDA_SUCCESS) return failed;
  check_captures(call_site);
  driver_lock.unlock();
  found->wait(found->pushed());
  return is_device_lost() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  const Stream* const found = stream_of(stream, *current_device());
  if (found == nullptr) {
    misuse("cuStreamQuery of {}, which is no stream", fmt::ptr(stream));
    return kInvalidHandle;
  }
  if (const CUresult failed = check_not_captured("cuStreamQuery", *found); failed != CUDA_SUCCESS) return failed;
  check_captures(call_site);
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
  if (device.capture_of_blocking_stream() != nullptr && found == &device.legacy_stream()) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (const Capture* const capture = found->capture()) {
    *status = capture->is_valid() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* target = nullptr;
  if (const CUresult failed = find_target("cuStreamWaitEvent", stream, target); failed != CUDA_SUCCESS) return failed;
  const Event* const found = event_of("cuStreamWaitEvent", event);
  if (found == nullptr) return kInvalidHandle;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CapturedRecord* const record = found->captured();
  if (record != nullptr || target->capture() != nullptr) return wait_in_capture(*target, record);
  const Mark* const mark = found->mark();
  if (mark == nullptr) {
    misuse("cuStreamWaitEvent for an event that was never recorded, for which no stream waits");
    return CUDA_SUCCESS;
  }
  target->device.enqueue(*target, {.call = "cuStreamWaitEvent", .wait_for = mark});
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  const bool has_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *event = reinterpret_cast<CUevent>(&make_kept<Event>(*current_device(), has_time));
  return CUDA_SUCCESS;
}

// Allowed before the event's record is reached: streams that wait for the event continue to wait.
CUresult cuEventDestroy_v2(CUevent event) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  Event* const found = event_of("cuEventDestroy", event);
  if (found == nullptr) return kInvalidHandle;
  found->die();
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  Stream* target = nullptr;
  if (const CUresult failed = find_target("cuEventRecord", stream, target); failed != CUDA_SUCCESS) return failed;
  Event* const found = event_of("cuEventRecord", event);
  if (found == nullptr) return kInvalidHandle;
  if (&found->device != &target->device) {
    misuse("cuEventRecord of an event of device {} on a stream of device {}", found->device.ordinal,
           target->device.ordinal);
    return kInvalidHandle;
  }
  if (Capture* const capture = target->capture()) {
    found->record(capture->record(*target));
    return CUDA_SUCCESS;
  }
  found->record([target](Mark* mark) { target->device.enqueue(*target, {.call = "cuEventRecord", .reach = mark}); });
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const Event* const found = event_of("cuEventQuery", event);
  if (found == nullptr) return kInvalidHandle;
  if (const CapturedRecord* const record = found->captured()) {
    misuse("cuEventQuery of an event that was last recorded in a capture, which invalidates the capture");
    record->capture->invalidate();
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  check_captures(call_site);
  const Mark* const mark = found->mark();
  return mark == nullptr || mark->is_reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  std::array<const Mark*, 2> marks{};
  for (std::size_t i = 0; const CUevent event : {begin, end}) {
    const Event* const found = event_of("cuEventElapsedTime", event);
    if (found == nullptr) return kInvalidHandle;
    if (const CUresult failed = find_time_of(*found, marks[i++]); failed != CUDA_SUCCESS) return failed;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(marks[1]->time() - marks[0]->time()).count();
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace farandole::fake
// NOLINTEND(performance-no-int-to-ptr)
