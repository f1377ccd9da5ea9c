// SPDX-License-Identifier: Apache-2.0
#include "communicator/stream_wait.h"

#include <fmt/core.h>

#include "farandole/core/error.h"

namespace farandole {

StreamWait::StreamWait(const Work::State& work, StreamView stream, DeviceSlot& devices)
    : work_(work), stream_(stream), devices_(devices) {
  if (work.descriptor.memory == MemoryKind::kHost) {
    throw InvalidArgument(fmt::format("a stream can wait for collectives on devices only, not for {}; use wait()",
                                      describe(work.descriptor)));
  }
  if (const MemorySpace own = devices.context().space(); stream.space != own) {
    throw InvalidArgument(fmt::format("wait_on: expected a stream in {}, the device of this rank, got one in {}",
                                      describe(own), describe(stream.space)));
  }
}

bool StreamWait::find_event() {
  if (work_.operation) event_ = work_.operation->enqueued();
  return event_ != nullptr;
}

void StreamWait::enqueue() {
  if (event_ != nullptr) devices_.context().device().wait(stream_, *event_);
}

}  // namespace farandole
