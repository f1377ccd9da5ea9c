// SPDX-License-Identifier: Apache-2.0
// A pluggable device of TensorFlow, of type GPU, with the memory, streams and events of the double of CUDA.
//
// TensorFlow's handles are the double's: an SP_Stream is a CUstream, and device memory has the address that the double
// gave it, which host code cannot access. stream_kernel.cpp runs the kernels.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "driver.h"
#include "stream_kernel.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/kernels.h"

namespace fake_gpu {
namespace {

std::atomic<int64_t> copied_to_host{0};

CUstream cuda(SP_Stream stream) {
  return reinterpret_cast<CUstream>(stream);
}
CUevent cuda(SP_Event event) {
  return reinterpret_cast<CUevent>(event);
}

void succeed(TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

void allocate(const SP_Device* device, uint64_t bytes, int64_t /*memory_space*/, SP_DeviceMemoryBase* memory) {
  use_device(device->ordinal);
  CUdeviceptr address = 0;
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = nullptr;  // no memory is left
  memory->size = 0;
  if (driver().cuMemAlloc(&address, bytes) != CUDA_SUCCESS) return;
  memory->opaque = reinterpret_cast<void*>(address);
  memory->size = bytes;
}

void deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  use_device(device->ordinal);
  check(driver().cuMemFree(address_of(memory->opaque)), "cuMemFree");
  memory->opaque = nullptr;
}

void* allocate_pinned(const SP_Device* device, uint64_t bytes) {
  use_device(device->ordinal);
  void* memory = nullptr;
  return driver().cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS ? memory : nullptr;
}

void deallocate_pinned(const SP_Device* device, void* memory) {
  use_device(device->ordinal);
  check(driver().cuMemFreeHost(memory), "cuMemFreeHost");
}

TF_Bool get_memory_usage(const SP_Device* device, int64_t* free_bytes, int64_t* total_bytes) {
  use_device(device->ordinal);
  std::size_t free_now = 0, total = 0;
  check(driver().cuMemGetInfo(&free_now, &total), "cuMemGetInfo");
  *free_bytes = static_cast<int64_t>(free_now);
  *total_bytes = static_cast<int64_t>(total);
  return 1;
}

// ---- Streams and events ---------------------------------------------------------------------------------------------

void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  use_device(device->ordinal);
  CUstream made = nullptr;
  check(driver().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  *stream = reinterpret_cast<SP_Stream>(made);
  succeed(status);
}

// The double keeps a stream until the process ends.
void destroy_stream(const SP_Device* device, SP_Stream stream) {
  use_device(device->ordinal);
  check(driver().cuStreamSynchronize(cuda(stream)), "cuStreamSynchronize");
}

void create_event(const SP_Device* device, SP_Event* event, TF_Status* status) {
  use_device(device->ordinal);
  CUevent made = nullptr;
  check(driver().cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  *event = reinterpret_cast<SP_Event>(made);
  succeed(status);
}

void destroy_event(const SP_Device* device, SP_Event event) {
  use_device(device->ordinal);
  check(driver().cuEventDestroy(cuda(event)), "cuEventDestroy");
}

SE_EventStatus get_event_status(const SP_Device* device, SP_Event event) {
  use_device(device->ordinal);
  const CUresult result = driver().cuEventQuery(cuda(event));
  if (result == CUDA_ERROR_NOT_READY) return SE_EVENT_PENDING;
  return result == CUDA_SUCCESS ? SE_EVENT_COMPLETE : SE_EVENT_ERROR;
}

void record_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  use_device(device->ordinal);
  check(driver().cuEventRecord(cuda(event), cuda(stream)), "cuEventRecord");
  succeed(status);
}

void wait_for_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  use_device(device->ordinal);
  check(driver().cuStreamWaitEvent(cuda(stream), cuda(event), 0), "cuStreamWaitEvent");
  succeed(status);
}

void create_stream_dependency(const SP_Device* device, SP_Stream dependent, SP_Stream other, TF_Status* status) {
  SP_Event event = nullptr;
  create_event(device, &event, status);
  record_event(device, other, event, status);
  wait_for_event(device, dependent, event, status);
  destroy_event(device, event);
}

void block_host_for_event(const SP_Device* device, SP_Event event, TF_Status* status) {
  while (get_event_status(device, event) == SE_EVENT_PENDING)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  succeed(status);
}

void block_host_until_done(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  use_device(device->ordinal);
  check(driver().cuStreamSynchronize(cuda(stream)), "cuStreamSynchronize");
  succeed(status);
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

void copy(const SP_Device* device, SP_Stream stream, void* target, const void* source, uint64_t bytes,
          TF_Status* status) {
  use_device(device->ordinal);
  check(driver().cuMemcpyAsync(address_of(target), address_of(source), bytes, cuda(stream)), "cuMemcpyAsync");
  succeed(status);
}

void copy_and_wait(const SP_Device* device, void* target, const void* source, uint64_t bytes, TF_Status* status) {
  thread_local SP_Stream stream = nullptr;
  thread_local int ordinal = -1;
  if (ordinal != device->ordinal) create_stream(device, &stream, status);
  ordinal = device->ordinal;
  copy(device, stream, target, source, bytes, status);
  block_host_until_done(device, stream, status);
}

void fill(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* memory, uint8_t value, uint64_t bytes,
          TF_Status* status) {
  use_device(device->ordinal);
  check(driver().cuMemsetD8Async(address_of(memory->opaque), value, bytes, cuda(stream)), "cuMemsetD8Async");
  succeed(status);
}

struct HostCall {
  SE_StatusCallbackFn function;
  void* argument;
};

TF_Bool call_host(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn function, void* argument) {
  use_device(device->ordinal);
  const auto run = [](void* pointer, int /*is_possible*/) {
    const auto* const call = static_cast<HostCall*>(pointer);
    TF_Status* const status = TF_NewStatus();
    call->function(call->argument, status);
    TF_DeleteStatus(status);
  };
  const auto release = [](void* pointer) { delete static_cast<HostCall*>(pointer); };
  check(driver().launch(stream, "host_callback", run, new HostCall{function, argument}, release, nullptr, 0),
        "host_callback");
  return 1;
}

// ---- Registration ---------------------------------------------------------------------------------------------------

void set_memory_functions(SP_StreamExecutor& executor) {
  executor.allocate = allocate;
  executor.deallocate = deallocate;
  executor.host_memory_allocate = allocate_pinned;
  executor.host_memory_deallocate = deallocate_pinned;
  executor.unified_memory_allocate = [](const SP_Device*, uint64_t) -> void* { return nullptr; };
  executor.unified_memory_deallocate = [](const SP_Device*, void*) {};
  executor.get_allocator_stats = [](const SP_Device*, SP_AllocatorStats*) -> TF_Bool { return 0; };
  executor.device_memory_usage = get_memory_usage;
}

void set_stream_functions(SP_StreamExecutor& executor) {
  executor.create_stream = create_stream;
  executor.destroy_stream = destroy_stream;
  executor.create_stream_dependency = create_stream_dependency;
  executor.get_stream_status = [](const SP_Device*, SP_Stream, TF_Status* status) { succeed(status); };
  executor.create_event = create_event;
  executor.destroy_event = destroy_event;
  executor.get_event_status = get_event_status;
  executor.record_event = record_event;
  executor.wait_for_event = wait_for_event;
  executor.create_timer = [](const SP_Device*, SP_Timer*, TF_Status* status) { succeed(status); };
  executor.destroy_timer = [](const SP_Device*, SP_Timer) {};
  executor.start_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) { succeed(status); };
  executor.stop_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) { succeed(status); };
  executor.block_host_for_event = block_host_for_event;
  executor.block_host_until_done = block_host_until_done;
  executor.synchronize_all_activity = [](const SP_Device*, TF_Status* status) { succeed(status); };
  executor.host_callback = call_host;
}

void set_copy_functions(SP_StreamExecutor& executor) {
  using Memory = SP_DeviceMemoryBase;
  executor.memcpy_dtoh = [](const SP_Device* device, SP_Stream stream, void* target, const Memory* source,
                            uint64_t bytes, TF_Status* status) {
    ++copied_to_host;
    copy(device, stream, target, source->opaque, bytes, status);
  };
  executor.memcpy_htod = [](const SP_Device* device, SP_Stream stream, Memory* target, const void* source,
                            uint64_t bytes, TF_Status* status) {
    // TensorFlow does not order its copies of constants after earlier ops, which may still use the memory
    // (PluggableDevice::MaybeCopyTensorToPluggableDevice).
    if (const SP_Stream compute = compute_stream(device->ordinal)) {
      create_stream_dependency(device, stream, compute, status);
    }
    copy(device, stream, target->opaque, source, bytes, status);
  };
  executor.memcpy_dtod = [](const SP_Device* device, SP_Stream stream, Memory* target, const Memory* source,
                            uint64_t bytes,
                            TF_Status* status) { copy(device, stream, target->opaque, source->opaque, bytes, status); };
  executor.sync_memcpy_dtoh = [](const SP_Device* device, void* target, const Memory* source, uint64_t bytes,
                                 TF_Status* status) {
    ++copied_to_host;
    copy_and_wait(device, target, source->opaque, bytes, status);
  };
  executor.sync_memcpy_htod = [](const SP_Device* device, Memory* target, const void* source, uint64_t bytes,
                                 TF_Status* status) { copy_and_wait(device, target->opaque, source, bytes, status); };
  executor.sync_memcpy_dtod = [](const SP_Device* device, Memory* target, const Memory* source, uint64_t bytes,
                                 TF_Status* status) {
    copy_and_wait(device, target->opaque, source->opaque, bytes, status);
  };
  executor.mem_zero = [](const SP_Device* device, SP_Stream stream, Memory* memory, uint64_t bytes, TF_Status* status) {
    fill(device, stream, memory, 0, bytes, status);
  };
  executor.memset = fill;
  executor.memset32 = [](const SP_Device*, SP_Stream, Memory*, uint32_t, uint64_t, TF_Status* status) {
    TF_SetStatus(status, TF_UNIMPLEMENTED, "memset32");
  };
}

void create_device_functions(const SP_Platform* /*platform*/, SE_CreateDeviceFnsParams* parameters, TF_Status* status) {
  SP_DeviceFns& functions = *parameters->device_fns;
  functions.struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  functions.get_numa_node = [](const SP_Device*) -> int32_t { return -1; };
  functions.get_memory_bandwidth = [](const SP_Device*) -> int64_t { return -1; };
  functions.get_gflops = [](const SP_Device*) -> double { return -1; };
  succeed(status);
}

void set_platform_functions(SP_PlatformFns& functions) {
  functions.struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions.get_device_count = [](const SP_Platform*, int* count, TF_Status* status) {
    check(driver().cuDeviceGetCount(count), "cuDeviceGetCount");
    succeed(status);
  };
  functions.create_device = [](const SP_Platform*, SE_CreateDeviceParams* parameters, TF_Status* status) {
    parameters->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    parameters->device->ordinal = static_cast<int32_t>(parameters->ordinal);
    parameters->device->hardware_name = "double of a GPU";
    succeed(status);
  };
  functions.destroy_device = [](const SP_Platform*, SP_Device*) {};
  functions.create_device_fns = create_device_functions;
  functions.destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  functions.create_stream_executor = [](const SP_Platform*, SE_CreateStreamExecutorParams* parameters,
                                        TF_Status* status) {
    SP_StreamExecutor& executor = *parameters->stream_executor;
    executor.struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
    set_memory_functions(executor);
    set_stream_functions(executor);
    set_copy_functions(executor);
    succeed(status);
  };
  functions.destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  functions.create_timer_fns = [](const SP_Platform*, SP_TimerFns* functions, TF_Status* status) {
    functions->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
    functions->nanoseconds = [](SP_Timer) -> uint64_t { return 1; };
    succeed(status);
  };
  functions.destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
}

}  // namespace
}  // namespace fake_gpu

#define FAKE_GPU_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_GPU_EXPORT void SE_InitPlugin(SE_PlatformRegistrationParams* parameters, TF_Status* status) {
  parameters->major_version = SE_MAJOR;
  parameters->minor_version = SE_MINOR;
  parameters->patch_version = SE_PATCH;
  SP_Platform& platform = *parameters->platform;
  platform.struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform.name = "DOUBLE_OF_CUDA";
  platform.type = "GPU";
  platform.supports_unified_memory = 0;
  platform.use_bfc_allocator = 1;
  platform.force_memory_growth = 1;
  parameters->destroy_platform = [](SP_Platform*) {};
  parameters->destroy_platform_fns = [](SP_PlatformFns*) {};
  fake_gpu::set_platform_functions(*parameters->platform_fns);
  fake_gpu::succeed(status);
}

// Kernels register themselves when the library is loaded.
FAKE_GPU_EXPORT void TF_InitKernel() {}

/// Number of copies from devices to the host that TensorFlow has asked for.
FAKE_GPU_EXPORT int64_t fake_gpu_copies_to_host() {
  return fake_gpu::copied_to_host.load();
}
