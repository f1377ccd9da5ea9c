// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "cuda/launch_shape.h"
#include "cuda/nccl_group.h"
#include "cuda/scopes.h"
#include "farandole/core/error.h"

namespace farandole::cuda {

namespace {

CUstream handle_of(StreamView stream) {
  return static_cast<CUstream>(stream.handle);
}

CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

class CudaGraph final : public DeviceGraph {
 public:
  /// @param device  outlives the graph   @param graph  ends with this call   @throws DeviceError
  CudaGraph(const DeviceContext& device, CUgraph graph) : device_(device) {
    const CUresult result = device.api.cuGraphInstantiateWithFlags(&executable_, graph, 0);
    device.api.cuGraphDestroy(graph);
    device.check(result, "cuGraphInstantiateWithFlags");
  }
  ~CudaGraph() override {
    const ContextScope scope(device_.api, device_.context);
    device_.api.cuGraphExecDestroy(executable_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(StreamView stream) override {
    const ContextScope scope(device_.api, device_.context);
    device_.check(device_.api.cuGraphLaunch(executable_, handle_of(stream)), "cuGraphLaunch");
  }

 private:
  const DeviceContext& device_;
  CUgraphExec executable_ = nullptr;
};

/// Size of the pinned memory for the words of events, see PooledEvent.
constexpr std::size_t kEventWordBytes = 16384;

}  // namespace

CudaDevice::CudaDevice(const CudaApi& api, Nccl& nccl, DeviceInfo info, const KernelImage& image)
    : info_(std::move(info)),
      nccl_(nccl),
      device_(DeviceContext::open(api, info_)),
      memory_(device_memory()),
      pinned_(pinned_memory()),
      events_(device_) {
  const RelaxedCapture relaxed(api);
  load_kernels(image);
  event_words_ = pinned_.allocate(kEventWordBytes);
  if (event_words_ != nullptr) events_.set_words(event_words_, kEventWordBytes);
}

CudaDevice::~CudaDevice() {
  events_.clear();
  pinned_.release(event_words_);
}

void CudaDevice::load_kernels(const KernelImage& image) {
  const ContextScope scope(device_.api, device_.context);
  CUmodule module = nullptr;
  device_.check(device_.api.cuModuleLoadData(&module, image.code), "cuModuleLoadData");
  has_large_variants_ = image.has_large_variants;
  for (std::size_t variant = 0; variant < (has_large_variants_ ? kCapacities.size() : 1); ++variant) {
    for (int kernel = 0; kernel < kKernelCount; ++kernel) {
      const std::string name = variant_name(kernel, variant);
      if (name.empty()) continue;
      kernels_[variant][static_cast<std::size_t>(kernel)] = device_.load_kernel(module, name);
    }
  }
}

void CudaDevice::bind_thread() {
  device_.check(device_.api.cuCtxSetCurrent(device_.context), "cuCtxSetCurrent");
}

void CudaDevice::run_bound(const std::function<void()>& calls) {
  const ContextScope scope(device_.api, device_.context);
  calls();
}

MemoryPool::Source CudaDevice::device_memory() {
  return {[this](std::size_t bytes) -> void* {
            const ContextScope scope(device_.api, device_.context);
            const RelaxedCapture relaxed(device_.api);
            CUdeviceptr memory = 0;
            const CUresult result = device_.api.cuMemAlloc(&memory, bytes);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
            device_.check(result, "cuMemAlloc");
            return std::bit_cast<void*>(memory);
          },
          [this](void* memory) {
            const ContextScope scope(device_.api, device_.context);
            const RelaxedCapture relaxed(device_.api);
            device_.api.cuMemFree(address_of(memory));
          },
          [this] { wait_until_idle(); }};
}

MemoryPool::Source CudaDevice::pinned_memory() {
  return {[this](std::size_t bytes) -> void* {
            const ContextScope scope(device_.api, device_.context);
            const RelaxedCapture relaxed(device_.api);
            void* memory = nullptr;
            const CUresult result = device_.api.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
            if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
            device_.check(result, "cuMemHostAlloc");
            return memory;
          },
          [this](void* memory) {
            const ContextScope scope(device_.api, device_.context);
            const RelaxedCapture relaxed(device_.api);
            device_.api.cuMemFreeHost(memory);
          },
          [this] { wait_until_idle(); }};
}

// cuMemFree blocks until the device is idle, and meanwhile blocks every other thread that calls the driver, even a
// thread that would enqueue the work for which the device is waiting: a deadlock. So wait here first, without blocking
// other threads.
void CudaDevice::wait_until_idle() {
  constexpr auto kMaxPause = std::chrono::milliseconds(1);
  std::vector<CUstream> streams;
  {
    const std::lock_guard guard(streams_mutex_);
    streams = streams_;
  }
  const ContextScope scope(device_.api, device_.context);
  const RelaxedCapture relaxed(device_.api);
  std::chrono::microseconds pause(20);
  for (const CUstream stream : streams) {
    while (!is_idle(stream)) {
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(2 * pause, kMaxPause);
    }
  }
}

bool CudaDevice::is_idle(CUstream stream) {
  const std::lock_guard guard(streams_mutex_);  // so that no thread releases the stream
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) return true;
  if (is_capturing({stream, space()})) return true;  // captured work does not run; cuStreamQuery would end the capture
  const CUresult result = device_.api.cuStreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return false;
  device_.check(result, "cuStreamQuery");
  return true;
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* const memory = memory_.allocate(bytes);
  if (memory == nullptr) throw_no_memory(bytes);
  return memory;
}

void CudaDevice::throw_no_memory(std::size_t bytes) const {
  const ContextScope scope(device_.api, device_.context);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = info_.memory_bytes;
  device_.api.cuMemGetInfo(&free_bytes, &total_bytes);
  throw DeviceError(
      fmt::format("{} has no memory for {} bytes: {} of its {} bytes are free, and Farandole uses {} of them here; use "
                  "smaller tensors or batches, or end what else uses the device",
                  device_.name, bytes, free_bytes, total_bytes, memory_.use().in_use_bytes));
}

void* CudaDevice::allocate_pinned(std::size_t bytes) {
  void* const memory = pinned_.allocate(bytes);
  if (memory == nullptr) {
    throw DeviceError(
        fmt::format("the host has no pinned memory for {} bytes for {}, and Farandole uses {} bytes of it "
                    "here; see the machine's free memory and 'ulimit -l'",
                    bytes, device_.name, pinned_.use().in_use_bytes));
  }
  return memory;
}

StreamView CudaDevice::make_stream() {
  const ContextScope scope(device_.api, device_.context);
  CUstream stream = nullptr;
  device_.check(device_.api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const std::lock_guard guard(streams_mutex_);
  streams_.push_back(stream);
  return {stream, space()};
}

void CudaDevice::release_stream(StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  const RelaxedCapture relaxed(device_.api);
  const std::lock_guard guard(streams_mutex_);
  std::erase(streams_, handle_of(stream));
  device_.check(device_.api.cuStreamDestroy(handle_of(stream)), "cuStreamDestroy");
}

bool CudaDevice::is_capturing(StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = device_.api.cuStreamIsCapturing(handle_of(stream), &status);
  // This error means that `stream` is the default stream, and that a stream which synchronises with it is being
  // captured. Other errors are ignored here: the calls that enqueue work report them.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// In this mode other threads may call what a capture forbids.
void CudaDevice::begin_capture(StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  device_.check(device_.api.cuStreamBeginCapture(handle_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                "cuStreamBeginCapture");
}

std::unique_ptr<DeviceGraph> CudaDevice::end_capture(StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  CUgraph graph = nullptr;
  device_.check(device_.api.cuStreamEndCapture(handle_of(stream), &graph), "cuStreamEndCapture");
  return std::make_unique<CudaGraph>(device_, graph);
}

std::unique_ptr<DeviceEvent> CudaDevice::make_event(DeviceEvent::Use use) {
  return std::make_unique<CudaEvent>(events_, use);
}

void CudaDevice::record(DeviceEvent& event, StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  static_cast<CudaEvent&>(event).record(handle_of(stream));
}

void CudaDevice::wait(StreamView stream, DeviceEvent& event) {
  assert(static_cast<CudaEvent&>(event).is_recorded() && "a stream does not wait for an event that was never recorded");
  wait_for_handle(stream, event.handle());
}

void CudaDevice::wait_for_handle(StreamView stream, void* event) {
  const ContextScope scope(device_.api, device_.context);
  device_.check(device_.api.cuStreamWaitEvent(handle_of(stream), static_cast<CUevent>(event), 0), "cuStreamWaitEvent");
}

Seconds CudaDevice::elapsed(const DeviceEvent& begin, const DeviceEvent& end) {
  const ContextScope scope(device_.api, device_.context);
  const RelaxedCapture relaxed(device_.api);
  float milliseconds = 0;
  device_.check(device_.api.cuEventElapsedTime(&milliseconds, static_cast<CUevent>(begin.handle()),
                                               static_cast<CUevent>(end.handle())),
                "cuEventElapsedTime");
  return std::chrono::duration<float, std::milli>(milliseconds);
}

bool CudaDevice::write_word(std::uint32_t* word, std::uint32_t value, StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  return device_.write_word(word, value, handle_of(stream));
}

void CudaDevice::copy(void* output, const void* input, std::size_t bytes, StreamView stream) {
  if (bytes == 0) return;
  const ContextScope scope(device_.api, device_.context);
  device_.check(device_.api.cuMemcpyAsync(address_of(output), address_of(input), bytes, handle_of(stream)),
                "cuMemcpyAsync");
}

void CudaDevice::fill_zero(void* memory, std::size_t bytes, StreamView stream) {
  if (bytes == 0) return;
  const ContextScope scope(device_.api, device_.context);
  device_.check(device_.api.cuMemsetD8Async(address_of(memory), 0, bytes, handle_of(stream)), "cuMemsetD8Async");
}

void CudaDevice::launch(std::span<const DeviceTask> tasks, StreamView stream) {
  const ContextScope scope(device_.api, device_.context);
  for_each_batch(tasks, has_large_variants_, [&](const KernelBatch& batch) {
    const CUfunction function = kernels_[batch.variant][static_cast<std::size_t>(batch.kernel)];
    const unsigned blocks = blocks_of(batch.arguments.tile_count, device_.multiprocessors);
    // `parameters` need not outlive the call: CUDA copies the variant's part of the argument before the call returns.
    void* parameters[] = {const_cast<LargestArguments*>(&batch.arguments)};
    const CUresult result = device_.api.cuLaunchKernel(function, blocks, 1, 1, kBlockThreads, 1, 1, 0,
                                                       handle_of(stream), parameters, nullptr);
    if (result != CUDA_SUCCESS) {
      device_.check(result, "cuLaunchKernel of " + variant_name(batch.kernel, batch.variant));
    }
  });
}

void CudaDevice::synchronize(StreamView stream) {
  CudaEvent end(events_, DeviceEvent::Use::kHost);
  record(end, stream);
  // Yield first, so that short waits end quickly, then sleep between polls.
  constexpr int kYields = 100;
  constexpr auto kPause = std::chrono::microseconds(50);
  for (int polls = 0; !end.is_complete(); ++polls) {
    if (polls < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

const NcclApi& CudaDevice::require_nccl() {
  const NcclLibrary& nccl = nccl_.library();
  if (!nccl.problem.empty()) throw Unsupported("no collectives on CUDA devices: " + nccl.problem);
  return nccl.api;
}

DeviceGroupId CudaDevice::make_group_id() {
  const NcclApi& nccl = require_nccl();
  const ContextScope scope(device_.api, device_.context);
  return make_nccl_id(nccl, device_);
}

std::unique_ptr<DeviceGroup> CudaDevice::join_group(const DeviceGroupId& id, int rank, int size) {
  const NcclApi& nccl = require_nccl();
  return std::make_unique<NcclGroup>(*this, nccl, id, rank, size);
}

}  // namespace farandole::cuda
