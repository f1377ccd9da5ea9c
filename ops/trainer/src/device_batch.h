// SPDX-License-Identifier: Apache-2.0
// Batches in the memory of a device, and their parts in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "farandole/trainer/dataset.h"
#include "farandole/trainer/tensor.h"

namespace farandole::trainer {

/// A batch has inputs, targets, labels and weights, in this order. Parts that a data set does not have are empty.
inline constexpr std::size_t kBatchParts = 4;
using BatchParts = std::array<std::span<const std::byte>, kBatchParts>;
using BatchAddresses = std::array<void*, kBatchParts>;

template <class Scalar>
BatchParts parts_of(const Batch<Scalar>& batch) {
  return {std::as_bytes(batch.inputs.host()), std::as_bytes(batch.targets.host()),
          std::as_bytes(std::span(batch.labels)), std::as_bytes(std::span(batch.weights))};
}

inline std::size_t bytes_of(const BatchParts& batch) {
  std::size_t bytes = 0;
  for (const auto& part : batch) bytes += part.size();
  return bytes;
}

/// Memory of a device for one batch. Its addresses stay the same until a batch needs more memory.
template <class Scalar>
class DeviceBatch {
 public:
  explicit DeviceBatch(const TensorMemory& memory) : memory_(memory), inputs_(memory), targets_(memory) {}

  /// Returns where the parts of `batch` belong. Allocates if they need more memory than before.
  BatchAddresses reserve(const Batch<Scalar>& batch) {
    inputs_.resize(batch.inputs.samples(), batch.inputs.shape());
    targets_.resize(batch.targets.samples(), batch.targets.shape());
    reserve(labels_, batch.labels.size(), DType::kI32);
    reserve(weights_, batch.weights.size(), DType::kF32);
    return {inputs_.data(), targets_.data(), labels_.view().data, weights_.view().data};
  }

  /// The memory as a batch with the sizes of `batch`, for which it was reserved. Valid until the next `reserve`.
  BatchView<Scalar> view(const Batch<Scalar>& batch) const {
    const MemorySpace space = memory_.space;
    return {inputs_,
            {static_cast<const std::int32_t*>(labels_.view().data), batch.labels.size(), space},
            targets_,
            {static_cast<const float*>(weights_.view().data), batch.weights.size(), space},
            batch.targets_are_probabilities};
  }

 private:
  void reserve(Buffer& buffer, std::size_t count, DType dtype) {
    if (buffer.count() < count) buffer = allocate(memory_, count, dtype);
  }

  const TensorMemory memory_;
  Tensor<Scalar> inputs_, targets_;
  Buffer labels_, weights_;
};

}  // namespace farandole::trainer
