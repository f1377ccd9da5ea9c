// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a replica, where its model computes.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "batch_source.h"
#include "device_batch.h"
#include "drawn_batch.h"
#include "farandole/internal/deadline.h"
#include "farandole/sdk/device.h"
#include "kernels/device_execution.h"
#include "staged_copies.h"

namespace farandole::trainer {

/// Gives the micro-batches of the training steps, and puts them where the model computes. In host memory they stay
/// where they are. On a device they are gathered and copied while the device computes the micro-batch before; of
/// synthetic samples only the indices are, and `place` enqueues the kernels that draw the samples:
///
///     feed.seek(training_step);
///     const MicroBatch<float>& micro_batch = feed.next();
///     const BatchView<float> batch = feed.place();
///     …                    // enqueues the work on `batch`
///     feed.fetch_ahead();  // gathers the next micro-batch, and starts to copy it
///
/// Not thread-safe.
template <class Scalar>
class BatchFeed {
 public:
  /// @param source, execution  outlive this object; only this object moves the source
  /// @param always_weights  on a device: as DeviceBatch's
  BatchFeed(BatchSource<Scalar>& source, const Execution& execution, bool always_weights);

  /// Moves to the first micro-batch of a training step. Drops a micro-batch that was fetched ahead if it is another.
  void seek(std::int64_t training_step);
  /// Returns the next micro-batch, valid until the next `fetch_ahead` or `next`. Gathered samples are in host memory.
  /// @throws  what the data set threw, now or when the micro-batch was fetched ahead
  const MicroBatch<Scalar>& next();
  /// Puts the micro-batch that `next` returned where the model computes, at the same addresses each time unless it is
  /// larger than all before. @pre  it has samples. The view is valid until the next `place`.
  BatchView<Scalar> place();
  /// On a device: gathers the next micro-batch, if there is one before the last training step, and starts to copy it.
  /// No-op if it was done already.
  void fetch_ahead();
  /// Time since the last `seek` in which samples were gathered, or a thread that gathers was waited for, without the
  /// time in which the device computed meanwhile: `fetch_ahead` counts only if the device is idle at its end.
  Seconds waited() const { return waited_; }

 private:
  struct OnDevice {
    OnDevice(const BatchSource<Scalar>& source, const Execution& execution, bool always_weights);
    /// What is copied of a micro-batch, and where it belongs.
    BatchParts parts_of(const MicroBatch<Scalar>& micro_batch);
    BatchAddresses reserve(const MicroBatch<Scalar>& micro_batch);
    /// The micro-batch, once its parts were copied. Enqueues the drawing of synthetic samples.
    BatchView<Scalar> view(const Execution& execution, const MicroBatch<Scalar>& micro_batch);

    DeviceBatch<Scalar> batch;
    std::optional<DrawnBatch<Scalar>> drawn;  // instead of `batch` if the device draws the samples
    const BorrowedStream stream;
    StagedCopies copies;
    const std::unique_ptr<DeviceEvent> computed;
  };
  std::int64_t first_of(std::int64_t training_step) const { return training_step * source_.plan().micro_batches(); }

  BatchSource<Scalar>& source_;
  const Execution& execution_;
  std::optional<OnDevice> device_;               // empty in host memory
  std::int64_t position_ = 0;                    // of the next micro-batch; counts those of all training steps
  const MicroBatch<Scalar>* current_ = nullptr;  // the source's
  const MicroBatch<Scalar>* ahead_ = nullptr;    // likewise: the next one, if it was fetched ahead
  std::exception_ptr error_;                     // of the next one, likewise
  bool is_sent_ = false;                         // the next one, or the current one that was fetched ahead
  Seconds waited_{0};
};

}  // namespace farandole::trainer
