// SPDX-License-Identifier: Apache-2.0
// Which samples are in which batch, and which replica computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// `count` consecutive things.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Part `index` of `parts` of [0, count): from index*count/parts to (index+1)*count/parts. Sizes differ by at most one.
Range part_of(std::int64_t count, std::int64_t parts, std::int64_t index);

/// Deals the samples of a data set into global batches: every sample once per epoch, in an order that depends only on
/// the seed and the epoch, never on the number of replicas. Not thread-safe; each replica has its own.
class Loader {
 public:
  /// @throws InvalidArgument  no samples, more than 2^32, or global_batch < 1
  Loader(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed);

  std::int64_t samples() const { return samples_; }
  std::int64_t batches_per_epoch() const { return (samples_ + global_batch_ - 1) / global_batch_; }
  /// Samples of the smallest batch, the last one.
  std::int64_t last_batch() const { return samples_ - (batches_per_epoch() - 1) * global_batch_; }
  /// Shuffles for an epoch (0-based). Cost: one pass over the order; nothing if it is the current epoch.
  void start_epoch(std::int64_t epoch);
  /// The samples of global batch `index` of the current epoch; valid until the next `start_epoch`.
  std::span<const std::uint32_t> batch(std::int64_t index) const;

 private:
  std::int64_t samples_, global_batch_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::uint32_t> order_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
