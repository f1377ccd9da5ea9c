// SPDX-License-Identifier: Apache-2.0
// Streams of a caller that wait for collectives.
#pragma once

#include <memory>

#include "communicator/work_state.h"
#include "device/device_slot.h"
#include "farandole/core/stream.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Makes a stream wait for one collective on device memory: `find_event` until the collective is enqueued on the device
/// or has ended, then `enqueue`.
class StreamWait {
 public:
  /// @param work, devices  outlive this object
  /// @throws InvalidArgument  `work` is on host memory, or `stream` belongs to another device than this rank's
  StreamWait(const Work::State& work, StreamView stream, DeviceSlot& devices);

  /// Returns true once the collective is enqueued on the device. Non-blocking. The queue's mutex guards it.
  bool find_event();
  /// Makes work that is enqueued in the stream later wait for the collective. No-op for a collective that has ended: it
  /// has ended on the device, too.
  void enqueue();

 private:
  const Work::State& work_;
  const StreamView stream_;
  DeviceSlot& devices_;
  std::shared_ptr<DeviceEvent> event_;
};

}  // namespace farandole
