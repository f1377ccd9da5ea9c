// SPDX-License-Identifier: Apache-2.0
// Memory limit for messages that arrive before their receive is posted.
#pragma once

#include <atomic>
#include <cstddef>

#include "farandole/internal/limits.h"

namespace farandole::sockets {

/// Budget for unexpected messages, i.e. messages that arrive before a receive is posted, which the process must buffer.
/// A link whose peer exceeds the budget fails, so a faulty peer cannot exhaust this process's memory. Thread-safe.
class KeptBytes {
 public:
  explicit KeptBytes(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  /// Process-wide budget, shared by all links: half of the memory that the process may use.
  static KeptBytes& of_this_process() {
    static KeptBytes all(static_cast<std::size_t>(process_limits().memory_bytes / 2));
    return all;
  }

  std::size_t max_bytes() const { return max_bytes_; }
  /// Charges `bytes`. Returns false, and charges nothing, if the total would exceed `max_bytes`.
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
