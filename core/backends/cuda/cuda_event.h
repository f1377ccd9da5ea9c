// SPDX-License-Identifier: Apache-2.0
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

/// What the objects of one device share. Const after construction.
struct DeviceContext {
  const CudaApi& api;
  CUcontext context = nullptr;  ///< the device's primary one, which other libraries of the process use, too
  std::string name;             ///< "CUDA device 0 (NVIDIA H100 80GB HBM3)"

  /// @throws DeviceError  `function` has failed
  void check(CUresult result, std::string_view function) const;
};

/// An event of CUDA's, which is made once and used by one CudaEvent after another.
struct PooledEvent {
  CUevent event = nullptr;
  /// In pinned memory: the stream writes there how often the event was recorded. Null: the driver is asked instead.
  std::uint32_t* word = nullptr;
  std::uint32_t records = 0;
};

/// Events that nobody uses at present. Thread-safe.
class EventPool {
 public:
  /// @param device  outlives the pool
  explicit EventPool(const DeviceContext& device) : device_(device) {}
  /// Pinned memory for the words of events, which outlives them. Before the first event.
  void set_words(void* memory, std::size_t bytes);
  /// @throws DeviceError
  PooledEvent take(DeviceEvent::Use use);
  /// What has recorded it may still be in a stream.
  void give(const PooledEvent& event, DeviceEvent::Use use);
  /// Destroys the events.
  void clear();
  const DeviceContext& device() const { return device_; }

 private:
  std::vector<PooledEvent>& unused(DeviceEvent::Use use) { return unused_[static_cast<std::size_t>(use)]; }

  const DeviceContext& device_;
  std::mutex mutex_;                    // guards all below
  std::vector<PooledEvent> unused_[2];  // by use
  std::uint32_t* next_word_ = nullptr;
  std::size_t words_left_ = 0;
};

/// Asked by the host for its completion, it reads the word, and asks the driver once a millisecond: a device that has
/// failed writes no word.
class CudaEvent final : public DeviceEvent {
 public:
  /// @param pool  outlives the event
  CudaEvent(EventPool& pool, Use use) : pool_(pool), use_(use), pooled_(pool.take(use)) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { pool_.give(pooled_, use_); }
  bool is_complete() override;
  /// On a thread whose context is the device's. @throws DeviceError
  void record(CUstream stream);
  bool is_recorded() const { return is_recorded_; }
  CUevent handle() const { return pooled_.event; }

 private:
  using Clock = std::chrono::steady_clock;
  bool ask_driver() const;

  EventPool& pool_;
  const Use use_;
  PooledEvent pooled_;
  bool is_recorded_ = false;
  Clock::time_point next_question_{};  // to the driver
};

}  // namespace farandole::cuda
