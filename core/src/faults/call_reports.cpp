// SPDX-License-Identifier: Apache-2.0
#include "farandole/internal/call_reports.h"

#include <utility>

namespace farandole {

void CallReports::put(const CommunicatorKey& communicator, CallReport report) {
  constexpr std::size_t kMaxUnread = 1024;
  const std::lock_guard lock(mutex_);
  Box& box = boxes_[communicator.id];
  if (communicator.generation < box.generation) return;
  if (communicator.generation > box.generation) box = {communicator.generation, {}};
  if (box.reports.size() == kMaxUnread) box.reports.pop_front();
  box.reports.push_back(std::move(report));
}

std::deque<CallReport> CallReports::take(const CommunicatorKey& communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = boxes_.find(communicator.id);
  if (found == boxes_.end() || found->second.generation != communicator.generation) return {};
  return std::exchange(found->second.reports, {});
}

}  // namespace farandole
