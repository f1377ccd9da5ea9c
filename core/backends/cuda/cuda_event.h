// SPDX-License-Identifier: Apache-2.0
// DeviceEvent, implemented with CUDA, and a pool of CUDA's events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/cuda_api.h"
#include "farandole/sdk/device.h"

namespace farandole::cuda {

/// CUDA's functions and the context of a device, shared by all objects of the device. Const after construction.
struct DeviceContext {
  const CudaApi& api;
  CUcontext context = nullptr;  ///< the device's primary context, which other libraries of the process use, too
  std::string name;             ///< "CUDA device 0 (NVIDIA H100 80GB HBM3)"
  unsigned multiprocessors = 0;

  /// Retains the device's primary context for the rest of the process.
  /// @param api  outlives the result   @throws DeviceError
  static DeviceContext open(const CudaApi& api, const DeviceInfo& info);

  /// @throws DeviceError  `result`, returned by `function`, is an error
  void check(CUresult result, std::string_view function) const;
  /// Returns a kernel of a module, which CUDA has loaded: later, loading could wait for work in a stream. The context
  /// must be current on the calling thread.   @throws DeviceError
  CUfunction load_kernel(CUmodule module, const std::string& kernel) const;
  /// Enqueues a write of `value` to a word of pinned memory, after all earlier work in the stream. The context must be
  /// current on the calling thread. Returns false if the device cannot write words, or the driver cannot capture the
  /// write into a graph.   @throws DeviceError
  bool write_word(std::uint32_t* word, std::uint32_t value, CUstream stream) const;
};

/// A CUDA event and its completion word. Used by a single CudaEvent at a time.
struct PooledEvent {
  CUevent event = nullptr;
  /// Completion word in pinned memory. Each record makes the stream write the number of the record here, so the host
  /// sees completion without a call of the driver. Null for an event of another use than kHost, and if the pool has no
  /// words left or the device cannot write them.
  std::uint32_t* word = nullptr;
  std::uint32_t records = 0;  ///< how often the event was recorded
};

/// Pool of unused events: making an event is slow. Thread-safe.
class EventPool {
 public:
  /// @param device  outlives the pool
  explicit EventPool(const DeviceContext& device) : device_(device) {}
  /// Sets the memory for completion words. Call it before the first `take`. @param memory  pinned memory that outlives
  /// the pool's events
  void set_words(void* memory, std::size_t bytes);
  /// Returns an unused event, or makes a new event. @throws DeviceError
  PooledEvent take(DeviceEvent::Use use);
  /// Returns an event to the pool; its last record may still be pending in a stream.
  void give(const PooledEvent& event, DeviceEvent::Use use);
  /// Destroys the unused events.
  void clear();
  const DeviceContext& device() const { return device_; }

 private:
  std::vector<PooledEvent>& unused(DeviceEvent::Use use) { return unused_[static_cast<std::size_t>(use)]; }

  const DeviceContext& device_;
  std::mutex mutex_;                    // guards the members below
  std::vector<PooledEvent> unused_[3];  // by DeviceEvent::Use
  std::uint32_t* next_word_ = nullptr;
  std::size_t words_left_ = 0;
};

/// An event of a CUDA device. `is_complete` reads the completion word. Once a millisecond at most, `is_complete` also
/// calls the driver, because a device that has failed writes no words. For an event without a word every `is_complete`
/// calls the driver.
class CudaEvent final : public DeviceEvent {
 public:
  /// @param pool  outlives the event
  CudaEvent(EventPool& pool, Use use) : pool_(pool), use_(use), pooled_(pool.take(use)) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { pool_.give(pooled_, use_); }
  bool is_complete() override;
  /// The device's context must be current on the calling thread. @throws DeviceError
  void record(CUstream stream);
  bool is_recorded() const { return is_recorded_; }
  void* handle() const override { return pooled_.event; }

 private:
  using Clock = std::chrono::steady_clock;
  bool query_driver() const;

  EventPool& pool_;
  const Use use_;
  PooledEvent pooled_;
  bool is_recorded_ = false;
  Clock::time_point next_query_{};  // earliest time of the next call of the driver
};

}  // namespace farandole::cuda
