// SPDX-License-Identifier: Apache-2.0
// Comparison of direct calls among the ranks, after the calls were enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "device/direct_log.h"
#include "farandole/internal/call_reports.h"
#include "operation/call.h"
#include "operation/group.h"

namespace farandole {

/// Compares the direct calls of one communicator in a ring: each rank reports its calls to the next rank, by control
/// messages, and compares the reports of the rank before it with its own calls. So every rank is compared with every
/// other. Costs 24 bytes per call, in messages of up to 81 calls. Without a comparison (FARANDOLE_CHECK=off, a single
/// rank) it only counts. One thread at a time.
class DirectComparison {
 public:
  /// @param group  outlives this object
  explicit DirectComparison(const Group& group) : group_(group), compares_(group.compares && group.size() > 1) {}

  /// Reports the calls that were added to the log since the last time. @throws TransportError
  void report(const DirectLog& calls);
  /// Compares what the rank before has reported, as far as this rank has made the calls.
  /// @throws Mismatch  the first call that differs
  void compare();
  /// Number of calls that were reported. The log must keep later calls.
  std::uint64_t reported() const { return reported_; }
  /// True if all of the first `count` calls were compared.
  bool is_complete(std::uint64_t count) const { return !compares_ || compared_ >= count; }
  bool has_difference() const { return has_difference_; }
  /// Index of the rank whose reports this rank compares.
  int compared_rank() const { return neighbour(-1); }

 private:
  void compare(const CallReport& report);
  int neighbour(int distance) const { return (group_.rank + distance + group_.size()) % group_.size(); }

  const Group& group_;
  const bool compares_;
  std::uint64_t reported_ = 0;
  std::uint64_t compared_ = 0;      // number of calls that were compared
  std::deque<Descriptor> history_;  // own calls after these, up to reported_
  std::deque<CallReport> unread_;   // reports of calls that this rank has not reported itself
  bool has_difference_ = false;
};

}  // namespace farandole
