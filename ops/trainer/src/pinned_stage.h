// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, from which a device copies.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <thread>

#include "farandole/sdk/device.h"

namespace farandole::trainer {

/// Pinned host memory, from which a device copies while the host fills other memory. Not thread-safe.
class PinnedStage {
 public:
  explicit PinnedStage(Device& device) : device_(device), copied_(device.make_event(DeviceEvent::Use::kHost)) {}
  /// Keeps the memory if the device has failed, because a copy may still read it.
  ~PinnedStage() {
    try {
      wait();
    } catch (const std::exception&) {
      return;
    }
    device_.release_pinned(memory_);
  }
  PinnedStage(const PinnedStage&) = delete;
  PinnedStage& operator=(const PinnedStage&) = delete;

  std::size_t size() const { return bytes_; }
  /// Makes the memory `bytes` bytes large at least.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    wait();
    device_.release_pinned(memory_);
    memory_ = nullptr, bytes_ = 0;
    memory_ = device_.allocate_pinned(bytes);
    bytes_ = bytes;
  }
  /// Returns the memory, once all copies from it are done.
  std::byte* memory() {
    wait();
    return static_cast<std::byte*>(memory_);
  }
  /// Enqueues a copy from the memory. Whatever happens next, the memory is not used again before it is done.
  void send(void* to, const std::byte* from, std::size_t bytes, StreamView stream) {
    device_.copy(to, from, bytes, stream);
    device_.record(*copied_, stream);
  }

 private:
  void wait() {
    while (!copied_->is_complete()) std::this_thread::yield();
  }

  Device& device_;
  const std::unique_ptr<DeviceEvent> copied_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Two stages that are used in turn: the host fills one while the device copies from the other. Not thread-safe.
class PinnedStages {
 public:
  explicit PinnedStages(Device& device) : stages_{PinnedStage(device), PinnedStage(device)} {}

  /// Makes both `bytes` bytes large at least. Pinned memory may block in the driver, so not while gradients are in
  /// flight.
  void reserve(std::size_t bytes) {
    for (PinnedStage& stage : stages_) stage.reserve(bytes);
  }
  PinnedStage& next() {
    last_ = (last_ + 1) % stages_.size();
    return stages_[last_];
  }

 private:
  std::array<PinnedStage, 2> stages_;
  std::size_t last_ = 0;
};

}  // namespace farandole::trainer
