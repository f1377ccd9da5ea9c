// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_event.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "cuda/cuda_error.h"
#include "cuda/scopes.h"

namespace farandole::cuda {

namespace {

/// Time between calls of the driver; also the delay with which a failure of the device is noticed.
constexpr auto kQueryInterval = std::chrono::milliseconds(1);
/// Completion words lie 64 bytes apart, so that streams and readers of different events share no cache line.
constexpr std::size_t kWordsPerLine = 16;
/// Attribute of a kernel. Querying it makes CUDA load the kernel now.
constexpr int kMaxThreadsPerBlock = 0;  // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK

}  // namespace

DeviceContext DeviceContext::open(const CudaApi& api, const DeviceInfo& info) {
  DeviceContext opened{api, nullptr, fmt::format("CUDA device {} ({})", info.ordinal, info.name)};
  CUdevice device = 0;
  opened.check(api.cuDeviceGet(&device, info.ordinal), "cuDeviceGet");
  int multiprocessors = 0;
  opened.check(api.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
               "cuDeviceGetAttribute");
  opened.multiprocessors = static_cast<unsigned>(multiprocessors);
  const RelaxedCapture relaxed(api);
  opened.check(api.cuDevicePrimaryCtxRetain(&opened.context, device), "cuDevicePrimaryCtxRetain");
  return opened;
}

CUfunction DeviceContext::load_kernel(CUmodule module, const std::string& kernel) const {
  CUfunction function = nullptr;
  check(api.cuModuleGetFunction(&function, module, kernel.c_str()), fmt::format("cuModuleGetFunction of {}", kernel));
  int threads = 0;
  check(api.cuFuncGetAttribute(&threads, kMaxThreadsPerBlock, function),
        fmt::format("cuFuncGetAttribute of {}", kernel));
  return function;
}

void DeviceContext::check(CUresult result, std::string_view function) const {
  cuda::check(api, result, function, name);
}

bool DeviceContext::write_word(std::uint32_t* word, std::uint32_t value, CUstream stream) const {
  const CUresult result =
      api.cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) return false;
  check(result, "cuStreamWriteValue32");
  return true;
}

void EventPool::set_words(void* memory, std::size_t bytes) {
  std::memset(memory, 0, bytes);
  next_word_ = static_cast<std::uint32_t*>(memory);
  words_left_ = bytes / sizeof(std::uint32_t) / kWordsPerLine;
}

PooledEvent EventPool::take(DeviceEvent::Use use) {
  PooledEvent made;
  {
    const std::lock_guard guard(mutex_);
    std::vector<PooledEvent>& kept = unused(use);
    if (!kept.empty()) {
      made = kept.back();
      kept.pop_back();
      return made;
    }
    if (use == DeviceEvent::Use::kHost && words_left_ > 0) {
      --words_left_;
      made.word = next_word_;
      next_word_ += kWordsPerLine;
    }
  }
  const ContextScope scope(device_.api, device_.context);
  const unsigned flags = use == DeviceEvent::Use::kTiming ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  device_.check(device_.api.cuEventCreate(&made.event, flags), "cuEventCreate");
  return made;
}

void EventPool::give(const PooledEvent& event, DeviceEvent::Use use) {
  const std::lock_guard guard(mutex_);
  unused(use).push_back(event);
}

void EventPool::clear() {
  const ContextScope scope(device_.api, device_.context);
  const std::lock_guard guard(mutex_);
  for (std::vector<PooledEvent>& kept : unused_) {
    for (const PooledEvent& each : kept) device_.api.cuEventDestroy(each.event);
    kept.clear();
  }
}

void CudaEvent::record(CUstream stream) {
  const DeviceContext& device = pool_.device();
  ++pooled_.records;
  // The word is written before the event: once the event is complete, no write of the word is pending.
  if (pooled_.word != nullptr && !device.write_word(pooled_.word, pooled_.records, stream)) pooled_.word = nullptr;
  device.check(device.api.cuEventRecord(pooled_.event, stream), "cuEventRecord");
  is_recorded_ = true;
  next_query_ = Clock::now() + kQueryInterval;
}

bool CudaEvent::is_complete() {
  if (!is_recorded_) return true;
  if (pooled_.word == nullptr) return query_driver();
  if (std::atomic_ref<std::uint32_t>(*pooled_.word).load(std::memory_order_acquire) == pooled_.records) return true;
  const Clock::time_point now = Clock::now();
  if (now < next_query_) return false;
  next_query_ = now + kQueryInterval;
  return query_driver();
}

bool CudaEvent::query_driver() const {
  const DeviceContext& device = pool_.device();
  const RelaxedCapture relaxed(device.api);
  const CUresult result = device.api.cuEventQuery(pooled_.event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  device.check(result, "cuEventQuery");
  return true;
}

}  // namespace farandole::cuda
