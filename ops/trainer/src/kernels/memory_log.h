// SPDX-License-Identifier: Apache-2.0
// Tells whether memory that recorded work uses is still there.
#pragma once

#include <atomic>
#include <cstdint>

namespace farandole::trainer {

/// Numbers the memory of an execution on a device. A graph has the addresses of memory that existed when it was
/// captured; once such memory was released, for example because a tensor has grown, the graph must not run again.
/// Thread-safe.
class MemoryLog {
 public:
  /// Returns the number of new memory.
  std::uint64_t add() { return next_++; }
  void release(std::uint64_t number) {
    if (number < recorded_) has_moved_ = true;
  }
  /// Work was recorded that may use all memory of now.
  void record() { recorded_ = next_.load(); }
  /// True if memory that recorded work may use was released.
  bool has_moved() const { return has_moved_; }
  /// The recorded work is gone.
  void forget() {
    recorded_ = 0;
    has_moved_ = false;
  }

 private:
  std::atomic<std::uint64_t> next_{0}, recorded_{0};
  std::atomic<bool> has_moved_{false};
};

}  // namespace farandole::trainer
