// SPDX-License-Identifier: Apache-2.0
// A stream beside the caller's, in which buckets are reduced while the caller's stream computes.
#pragma once

#include <memory>

#include "farandole/sdk/device.h"

namespace farandole {

/// Forks from the caller's stream for each bucket, and joins it at the end of the training step. Both make one stream
/// wait for an event of the other. The host therefore never waits, and a training step may be captured into a graph.
class SideStream {
 public:
  /// @param device  outlives this object
  explicit SideStream(Device& device)
      : device_(device), stream_(device.make_stream()), forked_(make_event()), joined_(make_event()) {}

  /// Makes later work of the side stream wait for the work that is in `stream`, and returns the side stream.
  StreamView fork(StreamView stream);
  /// Makes later work of `stream` wait for the work of the side stream. No-op without a `fork` since the last `join`.
  void join(StreamView stream);

 private:
  std::unique_ptr<DeviceEvent> make_event() { return device_.make_event(DeviceEvent::Use::kStreams); }

  Device& device_;
  const StreamView stream_;
  const std::unique_ptr<DeviceEvent> forked_, joined_;
  bool is_forked_ = false;
};

}  // namespace farandole
