// SPDX-License-Identifier: Apache-2.0
// Copies of batches to a device, ahead of the work that uses them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "device_batch.h"
#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"
#include "pinned_stage.h"

namespace farandole::trainer {

/// Copies batches to a device in a stream of their own, while the stream of the execution computes. A batch goes from
/// pinned memory to staging memory on the device, and from there, in the stream of the execution, to where it is used:
///
///     copies.send(parts_of_next_batch);  // while the device computes
///     copies.receive(addresses);          // when the next batch is due
///
/// There are two pieces of staging memory, which are used in turn. Not thread-safe.
class FARANDOLE_API StagedCopies {
 public:
  /// @param execution  on a device; outlives this object   @param copies  a stream of the same device
  StagedCopies(const Execution& execution, StreamView copies);

  bool has_room_for(const BatchParts& batch) const;
  /// Makes room. Pinned memory may block in the driver, so not while gradients are in flight.
  void reserve(const BatchParts& batch);
  /// Enqueues the copy to the staging memory. The caller may change the batch at once. @pre  has_room_for(batch)
  void send(const BatchParts& batch);
  /// Enqueues, in the stream of the execution, the copy of the batch that was sent last.
  void receive(const BatchAddresses& to);

 private:
  struct Stage {
    explicit Stage(Device& device);
    bool has_room_for(const BatchParts& batch) const;

    std::array<Buffer, kBatchParts> parts;
    std::array<std::size_t, kBatchParts> sent_bytes{};
    bool was_read = false;
    const std::unique_ptr<DeviceEvent> copied, read;
    PinnedStage pinned;  // last member: its destructor waits for copies to `parts`
  };
  void grow(Stage& stage, const BatchParts& batch) const;

  const Execution& execution_;
  Device& device_;
  const StreamView copies_;
  std::array<std::unique_ptr<Stage>, 2> stages_;
  std::size_t last_ = 0;  // the stage of the batch that was sent last
};

}  // namespace farandole::trainer
