// SPDX-License-Identifier: Apache-2.0
// Makes devices fail: streams that hang (on a GPU and on the double), and calls that fail (on the double only).
#pragma once

#include "farandole/sdk/device.h"

namespace farandole::test {

/// Blocks a stream: work enqueued in the stream while this object lives starts after the object is destroyed.
class StuckStream {
 public:
  /// @param device  of the stream, which no other StuckStream may have; one of the process at a time
  StuckStream(Device& device, StreamView stream);
  ~StuckStream();
  StuckStream(const StuckStream&) = delete;
  StuckStream& operator=(const StuckStream&) = delete;
};

/// Lets the `nth` call of the double's `function` fail (0: every one), as fake_device_inject in fake_device.h. False
/// where the driver is none of the double's, which does not fail when it is told to.
bool inject_into_double(const char* function, unsigned nth, int error);

}  // namespace farandole::test
