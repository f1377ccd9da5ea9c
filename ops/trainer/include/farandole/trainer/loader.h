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

/// How a Loader cuts an epoch into batches.
struct LoaderOptions {
  bool drop_last = false;  ///< leave out the last batch of an epoch if it has fewer than `global_batch` samples
  bool shuffle = true;     ///< false: the order of the indices
  /// Number of batches in which an epoch is cut, of sizes that differ by at most 1; 0: as many batches of
  /// `global_batch` samples as there are, and then the rest.
  std::int64_t even_batches = 0;
};

/// Cuts a data set into global batches. Each epoch uses every sample once
/// (but for `drop_last`), in an order that depends only on seed and
/// epoch, never on the number of replicas. Not thread-safe; each replica has its own Loader.
class Loader {
 public:
  /// @throws InvalidArgument  there are no samples, or more than 2^32 - 1; global_batch < 1; or `drop_last` leaves no
  /// batch
  Loader(std::int64_t samples, std::int64_t global_batch, std::uint64_t seed, const LoaderOptions& options = {});

  std::int64_t samples() const { return samples_; }
  std::int64_t batches_per_epoch() const { return batches_; }
  /// Number of samples of the last batch. No other batch has fewer, except with `even_batches`.
  std::int64_t last_batch() const { return place_of(batches_ - 1).count; }
  /// Returns which part of an epoch's order batch `index` has.
  Range place_of(std::int64_t index) const;
  /// Shuffles the samples for an epoch (0-based). Cost: one pass over all samples; no-op for the current epoch.
  void start_epoch(std::int64_t epoch);
  /// Returns the indices of the samples of global batch `index` of the current epoch; valid until the next
  /// `start_epoch`.
  /// @throws InvalidArgument  there is no such batch, or `start_epoch` was never called
  std::span<const std::uint32_t> batch(std::int64_t index) const;

 private:
  std::int64_t samples_, global_batch_;
  std::uint64_t seed_;
  LoaderOptions options_;
  std::int64_t batches_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::uint32_t> order_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
