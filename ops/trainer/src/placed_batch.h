// SPDX-License-Identifier: Apache-2.0
// Batches in the memory in which a model computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "farandole/sdk/device.h"
#include "farandole/trainer/dataset.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Pinned host memory, from which a device copies while the host fills other memory. Not thread-safe.
class PinnedStage {
 public:
  explicit PinnedStage(Device& device) : device_(device), copied_(device.make_event(DeviceEvent::Use::kHost)) {}
  ~PinnedStage() {
    wait();
    device_.release_pinned(memory_);
  }
  PinnedStage(const PinnedStage&) = delete;
  PinnedStage& operator=(const PinnedStage&) = delete;

  /// Returns memory of `bytes` bytes at least. Waits until the copies before the last `sent` are done.
  std::byte* take(std::size_t bytes) {
    wait();
    if (bytes > bytes_) {
      device_.release_pinned(memory_);
      memory_ = nullptr, bytes_ = 0;
      memory_ = device_.allocate_pinned(bytes);
      bytes_ = bytes;
    }
    return static_cast<std::byte*>(memory_);
  }
  /// All copies from the memory are enqueued in the stream.
  void sent(StreamView stream) { device_.record(*copied_, stream); }

 private:
  void wait() {
    while (!copied_->is_complete()) std::this_thread::yield();
  }

  Device& device_;
  const std::unique_ptr<DeviceEvent> copied_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Puts batches where a model computes. In host memory they stay where they are. To a device they are copied: the copy
/// is enqueued in the execution's stream, from pinned memory, so that the caller may change the batch at once. Not
/// thread-safe.
template <class Scalar>
class PlacedBatch {
 public:
  /// @param execution  outlives this object
  explicit PlacedBatch(const Execution& execution)
      : execution_(execution), inputs_(execution.memory()), targets_(execution.memory()) {
    if (execution.space().is_host()) return;
    for (auto& stage : stages_) stage = std::make_unique<PinnedStage>(execution.device_kernels()->device());
  }

  /// Returns a view of the batch, valid until the next call, and as long as `batch`.
  BatchView<Scalar> place(const Batch<Scalar>& batch) {
    if (execution_.space().is_host()) return batch;
    inputs_.resize(batch.inputs.samples(), batch.inputs.shape());
    targets_.resize(batch.targets.samples(), batch.targets.shape());
    reserve(labels_, batch.labels.size(), DType::kI32);
    reserve(weights_, batch.weights.size(), DType::kF32);
    next_ = (next_ + 1) % stages_.size();
    PinnedStage& stage = *stages_[next_];
    std::byte* memory =
        stage.take(batch.inputs.view().size() * sizeof(Scalar) + batch.targets.view().size() * sizeof(Scalar) +
                   batch.labels.size() * sizeof(std::int32_t) + batch.weights.size() * sizeof(float));
    memory = send(batch.inputs.host(), inputs_.data(), memory);
    memory = send(batch.targets.host(), targets_.data(), memory);
    memory = send(std::span(batch.labels), labels_.view().data, memory);
    send(std::span(batch.weights), weights_.view().data, memory);
    stage.sent(execution_.stream());
    const MemorySpace space = execution_.space();
    return {inputs_,
            {static_cast<const std::int32_t*>(labels_.view().data), batch.labels.size(), space},
            targets_,
            {static_cast<const float*>(weights_.view().data), batch.weights.size(), space},
            batch.targets_are_probabilities};
  }

 private:
  void reserve(Buffer& buffer, std::size_t count, DType dtype) {
    if (buffer.count() < count) buffer = allocate(execution_.memory(), count, dtype);
  }

  /// Copies values to pinned memory, and enqueues the copy from there. Returns the end of the pinned memory in use.
  template <class T>
  std::byte* send(std::span<T> values, void* to, std::byte* pinned) {
    const std::size_t bytes = values.size_bytes();
    if (bytes == 0) return pinned;
    std::memcpy(pinned, values.data(), bytes);
    execution_.device_kernels()->device().copy(to, pinned, bytes, execution_.stream());
    return pinned + bytes;
  }

  const Execution& execution_;
  Tensor<Scalar> inputs_, targets_;
  Buffer labels_, weights_;
  std::array<std::unique_ptr<PinnedStage>, 2> stages_;  // the host fills one while the device copies from the other
  std::size_t next_ = 0;
};

}  // namespace farandole::trainer
