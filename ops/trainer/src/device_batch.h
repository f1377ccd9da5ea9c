// SPDX-License-Identifier: Apache-2.0
// Batches in the memory of a device, and their parts in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/trainer/dataset.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

/// A batch has inputs, targets, labels and weights, in this order. Parts that a data set does not have are empty.
inline constexpr std::size_t kBatchParts = 4;
using BatchParts = std::array<std::span<const std::byte>, kBatchParts>;
using BatchAddresses = std::array<void*, kBatchParts>;

inline std::size_t bytes_of(const BatchParts& batch) {
  std::size_t bytes = 0;
  for (const auto& part : batch) bytes += part.size();
  return bytes;
}

/// Allocates if the buffer holds fewer elements.
inline void reserve_elements(Buffer& buffer, const TensorMemory& memory, std::size_t count, DType dtype) {
  if (buffer.count() < count) buffer = allocate(memory, count, dtype);
}

/// Memory of a device for one batch. Its addresses stay the same until a batch needs more memory.
template <class Scalar>
class DeviceBatch {
 public:
  /// @param always_weights  a batch without weights gets ones: captured work reads weights of all batches or of none
  explicit DeviceBatch(const TensorMemory& memory, bool always_weights = false)
      : memory_(memory), always_weights_(always_weights), inputs_(memory), targets_(memory) {}

  /// The parts of a batch in host memory, valid until the next call.
  BatchParts parts_of(const Batch<Scalar>& batch) {
    const std::size_t weights = weights_in(batch);
    if (ones_.size() < weights) ones_.resize(weights, 1.0F);
    const std::span<const float> of_samples = std::span(batch.weights.empty() ? ones_ : batch.weights).first(weights);
    return {std::as_bytes(batch.inputs.host()), std::as_bytes(batch.targets.host()),
            std::as_bytes(std::span(batch.labels)), std::as_bytes(of_samples)};
  }

  /// Returns where the parts of `batch` belong. Allocates if they need more memory than before.
  BatchAddresses reserve(const Batch<Scalar>& batch) {
    inputs_.resize(batch.inputs.samples(), batch.inputs.shape());
    targets_.resize(batch.targets.samples(), batch.targets.shape());
    reserve_elements(labels_, memory_, batch.labels.size(), DType::kI32);
    reserve_elements(weights_, memory_, weights_in(batch), DType::kF32);
    return {inputs_.data(), targets_.data(), labels_.view().data, weights_.view().data};
  }

  /// The memory as a batch with the sizes of `batch`, for which it was reserved. Valid until the next `reserve`.
  BatchView<Scalar> view(const Batch<Scalar>& batch) const {
    const MemorySpace space = memory_.space;
    return {inputs_,
            {static_cast<const std::int32_t*>(labels_.view().data), batch.labels.size(), space},
            targets_,
            {static_cast<const float*>(weights_.view().data), weights_in(batch), space},
            batch.targets_are_probabilities};
  }

 private:
  std::size_t weights_in(const Batch<Scalar>& batch) const {
    const bool gets_ones = batch.weights.empty() && always_weights_;
    return gets_ones ? static_cast<std::size_t>(batch.inputs.samples()) : batch.weights.size();
  }

  const TensorMemory memory_;
  const bool always_weights_;
  std::vector<float> ones_;
  Tensor<Scalar> inputs_, targets_;
  Buffer labels_, weights_;
};

}  // namespace farandole::trainer
