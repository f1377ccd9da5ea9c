// SPDX-License-Identifier: Apache-2.0
// Loader cuts a data set into global batches. `part_of(batch size, replicas, replica)` returns the part of a batch that
// a replica computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// A range of `count` consecutive indices.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Cuts [0, count) into `parts` parts and returns part `index`: from index*count/parts to (index+1)*count/parts. The
/// sizes of the parts differ by at most 1.
Range part_of(std::int64_t count, std::int64_t parts, std::int64_t index);

/// Cuts a data set into global batches. Each epoch uses every sample once, in an order that depends only on seed and
/// epoch, never on the number of replicas. Not thread-safe; each replica has its own Loader.
class Loader {
 public:
  /// @throws InvalidArgument  there are no samples, or more than 2^32 - 1; or global_batch < 1
  Loader(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed);

  std::int64_t samples() const { return samples_; }
  std::int64_t batches_per_epoch() const { return (samples_ + global_batch_ - 1) / global_batch_; }
  /// Number of samples of the last batch, which is the smallest.
  std::int64_t last_batch() const { return samples_ - (batches_per_epoch() - 1) * global_batch_; }
  /// Shuffles the samples for an epoch (0-based). Cost: one pass over all samples; no-op for the current epoch.
  void start_epoch(std::int64_t epoch);
  /// Returns the indices of the samples of global batch `index` of the current epoch; valid until the next
  /// `start_epoch`.
  /// @throws InvalidArgument  there is no such batch, or `start_epoch` was never called
  std::span<const std::uint32_t> batch(std::int64_t index) const;

 private:
  std::int64_t samples_, global_batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::uint32_t> order_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
