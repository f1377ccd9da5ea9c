// SPDX-License-Identifier: Apache-2.0
// Device, implemented with CUDA's driver API.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/cuda_api.h"
#include "cuda/cuda_event.h"
#include "cuda/kernel_batches.h"
#include "cuda/kernel_image.h"
#include "cuda/memory_pool.h"
#include "cuda/vendor_libraries.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// An open CUDA device. Functions that call the driver make the device's primary context current on the calling thread,
/// and then restore the thread's own context (ContextScope), because the thread may be the program's.
class CudaDevice final : public Device {
 public:
  /// Retains the device's primary context. If no library of the process has created the context yet, this takes about
  /// 100 ms and 300 MB of device memory. Loads all kernels: loading a kernel later could block behind a collective that
  /// is running.
  /// @param api, nccl  outlive the device   @throws DeviceError
  CudaDevice(const CudaApi& api, Nccl& nccl, DeviceInfo info, const KernelImage& image);

  ~CudaDevice() override;
  const DeviceInfo& info() const override { return info_; }
  void bind_thread() override;
  void run_bound(const std::function<void()>& calls) override;
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override { memory_.release(memory); }
  void* allocate_pinned(std::size_t bytes) override;
  void release_pinned(void* memory) override { pinned_.release(memory); }
  std::size_t trim() override { return memory_.trim() + pinned_.trim(); }
  StreamView make_stream() override;
  void release_stream(StreamView stream) override;
  bool is_capturing(StreamView stream) override;
  void begin_capture(StreamView stream) override;
  std::unique_ptr<DeviceGraph> end_capture(StreamView stream) override;
  std::unique_ptr<DeviceEvent> make_event(DeviceEvent::Use use) override;
  void record(DeviceEvent& event, StreamView stream) override;
  void wait(StreamView stream, DeviceEvent& event) override;
  void wait_for_handle(StreamView stream, void* event) override;
  Seconds elapsed(const DeviceEvent& begin, const DeviceEvent& end) override;
  bool write_word(std::uint32_t* word, std::uint32_t value, StreamView stream) override;
  void copy(void* output, const void* input, std::size_t bytes, StreamView stream) override;
  void fill_zero(void* memory, std::size_t bytes, StreamView stream) override;
  void launch(std::span<const DeviceTask> tasks, StreamView stream) override;
  void synchronize(StreamView stream) override;
  DeviceGroupId make_group_id() override;
  std::unique_ptr<DeviceGroup> join_group(const DeviceGroupId& id, int rank, int size) override;

  const DeviceContext& context() const { return device_; }

 private:
  void load_kernels(const KernelImage& image);
  MemoryPool::Source device_memory();
  MemoryPool::Source pinned_memory();
  /// Blocks while streams of `make_stream` have work. Polls (cuStreamQuery), so that other threads can enqueue
  /// meanwhile: the work in a stream may be waiting for them. @throws DeviceError
  void wait_until_idle();
  /// True if the stream has no work, is being captured, or was released. @throws DeviceError
  bool is_idle(CUstream stream);
  [[noreturn]] void throw_no_memory(std::size_t bytes) const;
  /// Returns NCCL's functions. @throws Unsupported  NCCL is missing or cannot be used
  const NcclApi& require_nccl();

  const DeviceInfo info_;
  Nccl& nccl_;
  const DeviceContext device_;
  // The next two are const after construction.
  bool has_large_variants_ = false;                                                 // KernelImage::has_large_variants
  std::array<std::array<CUfunction, kKernelCount>, kCapacities.size()> kernels_{};  // by variant and kernel number
  std::mutex streams_mutex_;
  std::vector<CUstream> streams_;  // of make_stream, without those that were released; guarded by streams_mutex_
  MemoryPool memory_;
  MemoryPool pinned_;
  void* event_words_ = nullptr;  // from `pinned_`, for EventPool::set_words; null if there was no memory
  EventPool events_;
};

}  // namespace farandole::cuda
