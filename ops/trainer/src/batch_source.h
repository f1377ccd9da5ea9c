// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a replica in the order of the training steps, gathered ahead by threads if the options say so.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "batch_plan.h"
#include "farandole/core/settings.h"
#include "farandole/internal/deadline.h"
#include "prefetcher.h"
#include "synthetic_dataset.h"

namespace farandole::trainer {

/// A micro-batch of this replica.
template <class Scalar>
struct MicroBatch {
  Range part;                          ///< its samples within the global batch
  std::vector<std::uint32_t> samples;  ///< their indices in this rank's data
  Batch<Scalar> batch;                 ///< undefined without samples, and if a device draws them
};

/// Gathers the micro-batches of the training steps. With threads, the micro-batches of the coming training steps are
/// gathered meanwhile, also those of the next epoch, and at most up to the last training step.
///
///     const typename BatchSource<float>::Reading reading(source, last_step);
///     source.seek(training_step);
///     for (std::int64_t i = 0; i < source.plan().micro_batches(); ++i) use(source.next());
///
/// The order of the samples does not depend on the number of threads. An object is used by a single thread; its own
/// threads run only while a Reading exists.
template <class Scalar>
class BatchSource {
 public:
  /// @param data  object of this replica, if the data set has such (Dataset::for_replica); must outlive this object
  /// @param space  where the model computes
  BatchSource(const Dataset& data, const DataOptions& options, BatchPlan plan, MemorySpace space = {});

  /// A scope in which the threads may run, for the training steps before `last_step`. The destructor joins them.
  class Reading {
   public:
    Reading(BatchSource& source, std::int64_t last_step) : source_(source) { source_.last_step_ = last_step; }
    ~Reading() { source_.stop(); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    BatchSource& source_;
  };

  const BatchPlan& plan() const { return plan_; }
  /// The data of this replica, for messages: "the training data", or "rank 2's own shard".
  const std::string& data_name() const { return data_name_; }
  /// The data set if a device draws its samples: micro-batches then have indices only. Null if samples are gathered.
  const SyntheticDataset* drawn_on_device() const { return drawn_on_device_; }
  std::int64_t batches_per_epoch() const { return plan_.steps_per_epoch(); }
  /// Samples of a training step (0-based, over all epochs).
  StepSamples samples(std::int64_t training_step) const { return plan_.samples(training_step % batches_per_epoch()); }
  /// Moves to the first micro-batch of a training step. Cheap if the step follows the last one.
  void seek(std::int64_t training_step);
  /// True if `next` is before the last training step of the current Reading.
  bool has_next() const {
    return (prefetcher_ ? prefetcher_->position() : position_) < last_step_ * plan_.micro_batches();
  }
  /// Returns the next micro-batch, which is valid until the next call. Blocks until its samples are gathered.
  /// @throws  what the data set threw   @throws InvalidArgument  as check_gathered; the position stays
  MicroBatch<Scalar>& next();
  /// Time since the last `seek` in which `next` gathered, or waited for a thread that gathers.
  Seconds waited() const { return waited_; }

 private:
  /// Writes a micro-batch. @param index  counts the micro-batches of all training steps   Thread-safe.
  void gather(std::int64_t index, MicroBatch<Scalar>& result);
  void stop() {
    if (prefetcher_) prefetcher_->stop();
  }

  const BatchPlan plan_;
  const std::string data_name_;
  const Dataset& data_;
  const SyntheticDataset* const drawn_on_device_;
  std::int64_t last_step_ = 0;
  std::int64_t position_ = 0;    // of the next micro-batch, without threads
  MicroBatch<Scalar> gathered_;  // without threads
  Seconds waited_{0};
  std::mutex order_;               // guards loaders_
  std::array<Loader, 2> loaders_;  // of even and of odd epochs: with threads two epochs are in work at their border
  std::optional<Prefetcher<MicroBatch<Scalar>>> prefetcher_;  // last member, because its threads use the others
};

}  // namespace farandole::trainer
