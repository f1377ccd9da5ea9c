// SPDX-License-Identifier: Apache-2.0
// The last use by a device of memory that its owner wants to free.
#pragma once

#include <memory>

#include "farandole/internal/endpoint.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Remembers the work of a device that may use memory of an object, a GradientAverager for example. The object records
/// each use in the stream, and waits for the last use before it frees the memory, when the owner of the stream may have
/// destroyed the stream already. Host memory needs no such wait: without `open` all functions are no-ops.
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
