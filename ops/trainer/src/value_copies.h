// SPDX-License-Identifier: Apache-2.0
// Copies of a model's values, taken while training goes on.
#pragma once

#include <memory>
#include <vector>

#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"

namespace farandole::trainer {

/// Host memory for copies of vectors: pinned if they lie on a device.
///
///     ValueCopies copies(execution, {model.parameters(), model.statistics()});
///     copies.take();                 // returns at once; the vectors may change in the execution's stream
///     …                              // on any one thread:
///     copies.wait();
///     write(copies.views());
///
/// Used by one thread at a time.
class ValueCopies {
 public:
  /// @param execution  of the memory in which the vectors lie; outlives this object
  ValueCopies(const Execution& execution, std::vector<BufferView> vectors);
  /// Waits until the device has ended the copies. Keeps pinned memory if the device has failed, because a copy may
  /// still write it.
  ~ValueCopies();
  ValueCopies(const ValueCopies&) = delete;
  ValueCopies& operator=(const ValueCopies&) = delete;

  /// Host memory of each vector's copy.
  const std::vector<BufferView>& views() const { return views_; }
  /// Copies the vectors. On a device the copies are enqueued in the execution's stream.
  void take();
  /// Blocks until the copies are whole. @throws DeviceError  the device has failed
  void wait();
  /// Copies the values back to the vectors, and waits until they are there.
  void put_back();

 private:
  bool on_device() const { return event_ != nullptr; }

  const Execution& execution_;
  const std::vector<BufferView> vectors_;
  bool has_failed_ = false;  // the device, so that pinned memory stays
  std::vector<Buffer> memory_;
  std::vector<BufferView> views_;
  std::unique_ptr<DeviceEvent> event_;  // after the copies; null in host memory
};

}  // namespace farandole::trainer
