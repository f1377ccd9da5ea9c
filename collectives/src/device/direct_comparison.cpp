// SPDX-License-Identifier: Apache-2.0
#include "device/direct_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"

namespace farandole {
namespace {

constexpr std::size_t kCallsPerReport = CallReport::kMaxBytes / sizeof(Descriptor);

}  // namespace

void DirectComparison::report(const DirectLog& calls) {
  const std::uint64_t count = calls.count();
  if (!compares_) {
    reported_ = count;
    return;
  }
  while (reported_ < count) {
    CallReport report{reported_ + 1, {}};
    const std::size_t added = std::min<std::size_t>(count - reported_, kCallsPerReport);
    report.calls.resize(added * sizeof(Descriptor));
    for (std::size_t i = 0; i < added; ++i) {
      const Descriptor& descriptor = calls.descriptor(++reported_);
      std::memcpy(report.calls.data() + i * sizeof descriptor, &descriptor, sizeof descriptor);
      history_.push_back(descriptor);
    }
    group_.endpoint->report_calls(group_.member(neighbour(1)), *group_.direct, report);
  }
}

void DirectComparison::compare() {
  if (!compares_) return;
  for (CallReport& report : group_.endpoint->call_reports().take(*group_.direct)) unread_.push_back(std::move(report));
  while (!unread_.empty()) {
    const std::uint64_t end = unread_.front().first + unread_.front().calls.size() / sizeof(Descriptor);
    if (end > reported_ + 1) return;
    compare(unread_.front());
    unread_.pop_front();
  }
}

void DirectComparison::compare(const CallReport& report) {
  std::uint64_t number = report.first;
  for (std::size_t at = 0; at + sizeof(Descriptor) <= report.calls.size(); at += sizeof(Descriptor), ++number) {
    // Only after a report was lost.
    while (compared_ + 1 < number && !history_.empty()) {
      history_.pop_front();
      ++compared_;
    }
    if (history_.empty() || number != compared_ + 1) return;
    Descriptor other;
    std::memcpy(&other, report.calls.data() + at, sizeof other);
    const Descriptor own = history_.front();
    history_.pop_front();
    ++compared_;
    if (std::memcmp(&own, &other, sizeof own) == 0) continue;
    has_difference_ = true;
    const auto called = [&](int rank, const Descriptor& descriptor) {
      return group_.endpoint->topology().describe(group_.member(rank)) + " called " + describe(descriptor);
    };
    throw Mismatch(fmt::format(
        "in call {} in the caller's device order {}, but {}: every rank must make the same calls in the same order; "
        "the "
        "devices have begun them, so that their data is wrong (FARANDOLE_CHECK=strict compares before data is touched)",
        number, called(group_.rank, own), called(compared_rank(), other)));
  }
}

}  // namespace farandole
