// SPDX-License-Identifier: Apache-2.0
// The double of libcuda: devices, contexts, memory. Names and results are those of cuda.h.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fake_calls.h"
#include "fake_devices.h"
#include "fake_exports.h"
#include "fake_faults.h"
#include "fake_graphs.h"
#include "fake_memory.h"
#include "fake_options.h"

// NOLINTBEGIN(performance-no-int-to-ptr): CUDA's driver has addresses as numbers
namespace farandole::fake {

namespace {

struct ResultRow {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr std::array kResultRows{
    ResultRow{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ResultRow{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    ResultRow{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    ResultRow{kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    ResultRow{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ResultRow{kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    ResultRow{kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    ResultRow{kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    ResultRow{CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
              "the operation cannot be performed in the present state"},
    ResultRow{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    ResultRow{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    ResultRow{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    ResultRow{CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
              "operation not permitted when stream is capturing"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
              "operation failed due to a previous error during capture"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
              "operation would result in a merge of separate capture sequences"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
              "capture was not ended in the same stream as it began"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
              "capturing stream has unjoined work"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
              "dependency created on uncaptured work in another stream"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
              "operation would make the legacy stream depend on a capturing blocking stream"},
    ResultRow{CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
              "operation not permitted on an event last recorded in a capturing stream"},
    ResultRow{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
              "attempt to terminate a thread-local capture sequence from another thread"},
};

const ResultRow* row_of(CUresult result) {
  const auto* const found = std::find_if(kResultRows.begin(), kResultRows.end(),
                                         [result](const ResultRow& row) { return row.result == result; });
  return found == kResultRows.end() ? nullptr : found;
}

Device& current() {
  return *current_device();
}

CUresult free_memory(const char* call, Allocation::Kind kind, const void* memory) {
  Allocation* const allocation = find_to_free(call, kind, memory);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *device_of(allocation->device);
  if (option(Option::kFreeSyncs) != 0) device.synchronize();
  release(call, *allocation);
  if (kind == Allocation::Kind::kDevice) device.give_memory(allocation->bytes);
  return CUDA_SUCCESS;
}

}  // namespace

std::atomic<bool>& is_initialised() {
  static std::atomic<bool> is{false};
  return is;
}

int& capture_mode_of_thread() {
  thread_local int mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void check_captures(const CallSite& site) {
  if (!captures_forbid_unsafe_calls()) return;
  misuse("{} breaks the capture of a stream into a graph; call cuThreadExchangeStreamCaptureMode around it",
         site.name());
}

CUresult begin_cuda_call(CallSite& site, Needs needs) {
  if (const int injected = site.begin_call(); injected != 0) return injected;
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (count_towards_loss()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (!is_initialised().load(std::memory_order_relaxed)) return kNotInitialized;
  if (needs == Needs::kContext && current_device() == nullptr) {
    misuse("{} on a thread that has no current context; call cuCtxSetCurrent first", site.name());
    return kInvalidContext;
  }
  return CUDA_SUCCESS;
}

extern "C" {

CUresult cuInit(unsigned flags) {
  FARANDOLE_FAKE_CALL(Needs::kNothing);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (devices().empty()) return CUDA_ERROR_NO_DEVICE;
  is_initialised().store(true, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  FARANDOLE_FAKE_CALL(Needs::kNothing);
  *version = static_cast<int>(option(Option::kDriverVersion));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  FARANDOLE_FAKE_CALL(Needs::kNothing);
  const ResultRow* const row = row_of(error);
  *text = row == nullptr ? nullptr : row->name;
  return row == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  FARANDOLE_FAKE_CALL(Needs::kNothing);
  const ResultRow* const row = row_of(error);
  *text = row == nullptr ? nullptr : row->text;
  return row == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  *count = static_cast<int>(devices().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  if (device_of(ordinal) == nullptr) return kInvalidDevice;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const Device* const found = device_of(device);
  if (found == nullptr) return kInvalidDevice;
  if (bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = fmt::format("fake device {}", found->physical);
  const std::size_t length = std::min(text.size(), static_cast<std::size_t>(bytes) - 1);
  std::memcpy(name, text.data(), length);
  name[length] = '\0';
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const Device* const found = device_of(device);
  if (found == nullptr) return kInvalidDevice;
  constexpr char kStart[] = "fake device";
  *uuid = {};
  std::memcpy(uuid->bytes, kStart, sizeof kStart);
  uuid->bytes[sizeof uuid->bytes - 1] = static_cast<char>(found->physical);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  if (device_of(device) == nullptr) return kInvalidDevice;
  *bytes = static_cast<std::size_t>(option(Option::kMemory));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  constexpr int kMultiprocessors = 4;
  if (device_of(device) == nullptr) return kInvalidDevice;
  const auto capability = static_cast<int>(option(Option::kCapability));
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kMultiprocessors;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  Device* const found = device_of(device);
  if (found == nullptr) return kInvalidDevice;
  *context = reinterpret_cast<CUcontext>(found);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  Device* const device = device_of(context);
  if (context != nullptr && device == nullptr) return kInvalidContext;
  current_device() = device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  *context = reinterpret_cast<CUcontext>(current_device());
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  *total_bytes = static_cast<std::size_t>(option(Option::kMemory));
  *free_bytes = *total_bytes - std::min(*total_bytes, current().used_bytes());
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* memory, std::size_t bytes) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!current().take_memory(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation* const allocation = allocate(Allocation::Kind::kDevice, current().ordinal, bytes);
  if (allocation == nullptr) {
    current().give_memory(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *memory = allocation->begin;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  if (memory == 0) return CUDA_SUCCESS;
  return free_memory("cuMemFree", Allocation::Kind::kDevice, reinterpret_cast<const void*>(memory));
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* const allocation = allocate(Allocation::Kind::kPinned, current().ordinal, bytes);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *memory = reinterpret_cast<void*>(allocation->begin);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory) {
  FARANDOLE_FAKE_CALL(Needs::kContext);
  check_captures(call_site);
  return free_memory("cuMemFreeHost", Allocation::Kind::kPinned, memory);
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr memory) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  const Allocation* const allocation = find_allocation(reinterpret_cast<const void*>(memory));
  if (allocation == nullptr || allocation->is_freed.load(std::memory_order_relaxed)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) =
          allocation->kind == Allocation::Kind::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = allocation->device;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  FARANDOLE_FAKE_CALL(Needs::kDriver);
  if (*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(capture_mode_of_thread(), *mode);
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace farandole::fake
// NOLINTEND(performance-no-int-to-ptr)
