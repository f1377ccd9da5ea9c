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

/// Compares the direct calls of one communicator in a ring. Each rank reports its calls to the next rank, by control
/// messages, and compares its own calls with the reports of the rank before it. If all neighbours agree, all ranks
/// agree. Costs 24 bytes per call, in messages of up to 81 calls. With FARANDOLE_CHECK=off, or a single rank, only
/// counts the calls. Not thread-safe.
class DirectComparison {
 public:
  /// @param group  outlives this object
  explicit DirectComparison(const Group& group) : group_(group), compares_(group.compares && group.size() > 1) {}

  /// Reports the calls added to the log since the last `report`. @throws TransportError
  void report(const DirectLog& calls);
  /// Compares the calls that both this rank and the rank before have reported.
  /// @throws Mismatch  a call differs; names the first
  void compare();
  /// Number of the last call that was reported. The log must not release later calls.
  std::uint64_t reported() const { return reported_; }
  /// True if the first `count` calls were compared, or ranks do not compare.
  bool is_complete(std::uint64_t count) const { return !compares_ || next_ > count; }
  bool has_difference() const { return has_difference_; }
  /// Index of the rank whose reports this rank compares.
  int compared_rank() const { return neighbour(-1); }

 private:
  void compare(std::uint64_t number, const CallReport& report);
  int neighbour(int distance) const { return (group_.rank + distance + group_.size()) % group_.size(); }

  const Group& group_;
  const bool compares_;
  std::uint64_t reported_ = 0;
  std::uint64_t next_ = 1;          // number of the next call to compare; skips calls whose report was lost
  std::deque<Descriptor> history_;  // this rank's last calls, up to reported_
  std::deque<CallReport> unread_;   // reports with calls that are not compared yet
  bool has_difference_ = false;
};

}  // namespace farandole
