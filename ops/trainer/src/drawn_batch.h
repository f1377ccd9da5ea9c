// SPDX-License-Identifier: Apache-2.0
// Batches of synthetic samples, drawn in the memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device_batch.h"
#include "synthetic_dataset.h"

namespace farandole::trainer {

/// Memory of a device for one batch of a SyntheticDataset, like DeviceBatch, but only the indices of the samples are
/// copied to the device:
///
///     copies.send(batch.parts_of(indices));
///     copies.receive(batch.reserve(indices.size()));
///     const BatchView<Scalar> view = batch.draw(execution, indices.size());
///
/// The addresses stay the same until a batch needs more memory.
template <class Scalar>
class DrawnBatch {
 public:
  /// @param data  outlives this object   @param always_weights  as DeviceBatch's
  DrawnBatch(const SyntheticDataset& data, const TensorMemory& memory, bool always_weights)
      : data_(data), memory_(memory), always_weights_(always_weights), inputs_(memory), targets_(memory) {}

  /// The indices and the weights, valid until the next call, and as long as `indices`.
  BatchParts parts_of(std::span<const std::uint32_t> indices) {
    const std::size_t weights = weights_in(indices.size());
    if (ones_.size() < weights) ones_.resize(weights, 1.0F);
    return {std::as_bytes(indices), std::as_bytes(std::span(ones_).first(weights))};
  }

  /// Returns where the parts belong. Allocates if they, or the samples, need more memory than before.
  BatchAddresses reserve(std::size_t samples) {
    inputs_.resize(static_cast<std::int64_t>(samples), data_.shape());
    reserve_elements(labels_, memory_, labels_in(samples), DType::kI32);
    reserve_elements(indices_, memory_, samples, DType::kU32);
    reserve_elements(weights_, memory_, weights_in(samples), DType::kF32);
    return {indices_.view().data, weights_.view().data};
  }

  /// Enqueues the drawing of the samples whose indices are in the memory, and returns them. Valid until the next
  /// `reserve`. @param execution  of the memory
  BatchView<Scalar> draw(const Execution& execution, std::size_t samples) {
    data_.draw<Scalar>(kernels_of<Scalar>(execution),
                       {static_cast<std::int64_t>(samples), static_cast<const std::uint32_t*>(indices_.view().data),
                        inputs_.data(), static_cast<std::int32_t*>(labels_.view().data)});
    return {inputs_,
            {static_cast<const std::int32_t*>(labels_.view().data), labels_in(samples), memory_.space},
            targets_,
            {static_cast<const float*>(weights_.view().data), weights_in(samples), memory_.space},
            /*probabilities=*/false};
  }

 private:
  std::size_t labels_in(std::size_t samples) const {
    return samples * static_cast<std::size_t>(data_.labels_per_sample());
  }
  std::size_t weights_in(std::size_t samples) const { return always_weights_ ? samples : 0; }

  const SyntheticDataset& data_;
  const TensorMemory memory_;
  const bool always_weights_;
  std::vector<float> ones_;
  Tensor<Scalar> inputs_, targets_;
  Buffer labels_, indices_, weights_;
};

}  // namespace farandole::trainer
