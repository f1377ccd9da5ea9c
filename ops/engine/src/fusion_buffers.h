// SPDX-License-Identifier: Apache-2.0
// Buffers in which small tensors are packed together.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "farandole/collectives/communicator.h"

namespace farandole {

/// Pool of fusion buffers: in window memory if possible, or in the memory of a device. Not thread-safe.
class FusionBuffers {
 public:
  /// Where the buffers lie, and how many unused ones are kept. Those of a device are all kept: the device may still use
  /// a buffer that was given back.
  explicit FusionBuffers(Communicator communicator, MemorySpace space = {})
      : communicator_(std::move(communicator)), space_(space) {}
  /// Returns a buffer of at least `bytes` bytes. Its content is undefined. Memory of a device that is new is waited
  /// for.
  Buffer take(std::size_t bytes);
  void give_back(Buffer buffer);
  /// Number of buffers that were made.
  std::size_t made() const { return made_; }

 private:
  Communicator communicator_;
  const MemorySpace space_;
  std::vector<Buffer> free_;  // ascending by size
  std::size_t made_ = 0;
};

}  // namespace farandole
