// SPDX-License-Identifier: Apache-2.0
// Batches in the memory in which a model computes.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>

#include "device_batch.h"
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
  /// @param execution  outlives this object
  explicit PlacedBatch(const Execution& execution) : execution_(execution), memory_(execution.memory()) {
    if (!execution.space().is_host()) stages_.emplace(device_of(execution));
  }

  /// Returns a view of the batch, valid until the next call, and as long as `batch`.
  BatchView<Scalar> place(const Batch<Scalar>& batch) {
    if (execution_.space().is_host()) return batch;
    const BatchAddresses addresses = memory_.reserve(batch);
    const BatchParts parts = memory_.parts_of(batch);
    stages_->reserve(bytes_of(parts));
    PinnedStage& stage = stages_->next();
    std::byte* pinned = stage.memory();
    for (std::size_t i = 0; i < kBatchParts; ++i) {
      if (parts[i].empty()) continue;
      std::memcpy(pinned, parts[i].data(), parts[i].size());
      stage.send(addresses[i], pinned, parts[i].size(), execution_.stream());
      pinned += parts[i].size();
    }
    return memory_.view(batch);
  }

 private:
  const Execution& execution_;
  DeviceBatch<Scalar> memory_;
  std::optional<PinnedStages> stages_;  // empty in host memory
};

}  // namespace farandole::trainer
