// SPDX-License-Identifier: Apache-2.0
// A bound for what other processes can make this one keep.
#pragma once

#include <atomic>
#include <cstddef>

#include "farandole/internal/limits.h"

namespace farandole::sockets {

/// Counts the memory of messages that have arrived before anybody asked for them. Thread-safe.
class KeptBytes {
 public:
  explicit KeptBytes(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  /// That of all links of this process together: half of the memory that it may use.
  static KeptBytes& of_this_process() {
    static KeptBytes all(static_cast<std::size_t>(process_limits().memory_bytes / 2));
    return all;
  }

  std::size_t max_bytes() const { return max_bytes_; }
  /// False, and nothing is taken, if it would be more than the most.
  bool take(std::size_t bytes) {
    if (bytes <= max_bytes_ && bytes_.fetch_add(bytes, std::memory_order_relaxed) <= max_bytes_ - bytes) return true;
    if (bytes <= max_bytes_) give_back(bytes);
    return false;
  }
  void give_back(std::size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const std::size_t max_bytes_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace farandole::sockets
