// SPDX-License-Identifier: Apache-2.0
// Waits until a device no longer uses memory that its owner wants to free.
#pragma once

#include <memory>

#include "farandole/internal/endpoint.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Last work on a device that may use memory of an object, such as a GradientAverager. The object calls `record` after
/// each use, and `wait_for_end` before it frees the memory; the program may have destroyed the stream by then. Host
/// memory needs no such wait: without `open` all functions are no-ops.
class DeviceUse {
 public:
  void open(Device& device) {
    end_ = device.make_event(DeviceEvent::Use::kStreams);
    device_ = &device;
  }
  /// Notes that all work in `stream` may use the memory. No-op while the stream is captured. @throws DeviceError
  void record(StreamView stream) {
    if (device_ != nullptr && !device_->is_capturing(stream)) device_->record(*end_, stream);
  }
  /// Blocks until the recorded work is complete. After a fault of the job a device may never complete its work: the
  /// wait then lasts a second at most. Returns false if the device may still use the memory. Never throws.
  bool wait_for_end(EndpointFaults& faults);

 private:
  Device* device_ = nullptr;
  std::unique_ptr<DeviceEvent> end_;
};

}  // namespace farandole
