// SPDX-License-Identifier: Apache-2.0
// Buffers in which small tensors are packed together.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace farandole {

/// Pool of fusion buffers: in window memory if possible, or in the memory of a device. Not thread-safe.
///
/// The pool keeps at most 8 unused host buffers. It keeps all device buffers, because the device may still use a buffer
/// that was given back.
class FusionBuffers {
 public:
  /// @param space  memory in which the buffers lie; default: the host's
  explicit FusionBuffers(Communicator communicator, MemorySpace space = {})
      : communicator_(std::move(communicator)), space_(space) {}
  /// Returns a buffer of at least `bytes` bytes, with undefined content. Blocks only if new device memory must be
  /// allocated.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer);
  /// Number of buffers that this pool has allocated.
  std::size_t made() const { return made_; }

 private:
  Communicator communicator_;
  const MemorySpace space_;
  std::vector<Buffer> free_;  // ascending by size
  std::size_t made_ = 0;
};

}  // namespace farandole
