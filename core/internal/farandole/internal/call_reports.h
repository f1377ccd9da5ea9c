// SPDX-License-Identifier: Apache-2.0
// Reports of calls that ranks compare after the calls were enqueued on devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/internal/communicator_ids.h"

namespace farandole FARANDOLE_API {

/// Successive calls of one rank on one communicator.
struct CallReport {
  std::uint64_t first = 0;       ///< number of the first call
  std::vector<std::byte> calls;  ///< the calls' descriptors, at most kMaxBytes
  static constexpr std::size_t kMaxBytes = 1960;
};

/// Unread call reports that peers have sent to one rank, by communicator. Thread-safe.
class CallReports {
 public:
  /// Adds a report. Keeps reports about the newest communicator of an id only, and at most 1024 of them: drops the
  /// oldest.
  void put(const CommunicatorKey& communicator, CallReport report);
  /// Removes and returns the reports about a communicator, in the order in which they were sent.
  std::deque<CallReport> take(const CommunicatorKey& communicator);

 private:
  struct Box {
    std::uint64_t generation = 0;
    std::deque<CallReport> reports;
  };
  std::mutex mutex_;
  std::map<std::uint16_t, Box> boxes_;  // by communicator id; guarded by mutex_
};

}  // namespace FARANDOLE_API
