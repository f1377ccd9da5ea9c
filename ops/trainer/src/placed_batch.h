// SPDX-License-Identifier: Apache-2.0
// Batches in the memory in which a model computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "farandole/trainer/dataset.h"
#include "kernels/kernels.h"
#include "kernels/transfer.h"
#include "pinned_stage.h"

namespace farandole::trainer {

/// Puts batches where a model computes. In host memory they stay where they are. To a device they are copied: the copy
/// is enqueued in the execution's stream, from pinned memory, so that the caller may change the batch at once. Not
/// thread-safe.
template <class Scalar>
class PlacedBatch {
 public:
  /// @param execution  outlives this object   @param always_weights  on a device, a batch without weights gets ones:
  /// work that was captured reads weights of all batches or of none
  explicit PlacedBatch(const Execution& execution, bool always_weights = false)
      : execution_(execution),
        always_weights_(always_weights),
        inputs_(execution.memory()),
        targets_(execution.memory()) {
    if (execution.space().is_host()) return;
    for (auto& stage : stages_) stage = std::make_unique<PinnedStage>(device_of(execution));
  }

  /// Returns a view of the batch, valid until the next call, and as long as `batch`.
  BatchView<Scalar> place(const Batch<Scalar>& batch) {
    if (execution_.space().is_host()) return batch;
    const std::span<const float> weights = weights_of(batch);
    inputs_.resize(batch.inputs.samples(), batch.inputs.shape());
    targets_.resize(batch.targets.samples(), batch.targets.shape());
    reserve(labels_, batch.labels.size(), DType::kI32);
    reserve(weights_, weights.size(), DType::kF32);
    next_ = (next_ + 1) % stages_.size();
    PinnedStage& stage = *stages_[next_];
    const std::size_t bytes = batch.inputs.view().size() * sizeof(Scalar) +
                              batch.targets.view().size() * sizeof(Scalar) +
                              batch.labels.size() * sizeof(std::int32_t) + weights.size() * sizeof(float);
    // Both grow now: pinned memory may block in the driver, so not while gradients are in flight.
    for (auto& each : stages_) each->reserve(bytes);
    std::byte* memory = stage.memory();
    memory = send(stage, batch.inputs.host(), inputs_.data(), memory);
    memory = send(stage, batch.targets.host(), targets_.data(), memory);
    memory = send(stage, std::span(batch.labels), labels_.view().data, memory);
    send(stage, weights, weights_.view().data, memory);
    const MemorySpace space = execution_.space();
    return {inputs_,
            {static_cast<const std::int32_t*>(labels_.view().data), batch.labels.size(), space},
            targets_,
            {static_cast<const float*>(weights_.view().data), weights.size(), space},
            batch.targets_are_probabilities};
  }

 private:
  void reserve(Buffer& buffer, std::size_t count, DType dtype) {
    if (buffer.count() < count) buffer = allocate(execution_.memory(), count, dtype);
  }

  std::span<const float> weights_of(const Batch<Scalar>& batch) {
    if (!batch.weights.empty() || !always_weights_) return batch.weights;
    ones_.resize(static_cast<std::size_t>(batch.inputs.samples()), 1.0F);
    return ones_;
  }

  /// Copies values to pinned memory, and enqueues the copy from there. Returns the end of the pinned memory in use.
  template <class T>
  std::byte* send(PinnedStage& stage, std::span<T> values, void* to, std::byte* pinned) {
    const std::size_t bytes = values.size_bytes();
    if (bytes == 0) return pinned;
    std::memcpy(pinned, values.data(), bytes);
    stage.send(to, pinned, bytes, execution_.stream());
    return pinned + bytes;
  }

  const Execution& execution_;
  const bool always_weights_;
  std::vector<float> ones_;
  Tensor<Scalar> inputs_, targets_;
  Buffer labels_, weights_;
  std::array<std::unique_ptr<PinnedStage>, 2> stages_;  // the host fills one while the device copies from the other
  std::size_t next_ = 0;
};

}  // namespace farandole::trainer
