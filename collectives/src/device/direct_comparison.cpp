// SPDX-License-Identifier: Apache-2.0
#include "device/direct_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
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
    const CallReport& report = unread_.front();
    const std::uint64_t end = report.first + report.calls.size() / sizeof(Descriptor);
    while (next_ < end && next_ <= reported_) {
      if (next_ >= report.first) compare(next_, report);
      ++next_;
    }
    if (next_ < end) return;
    unread_.pop_front();
  }
}

void DirectComparison::compare(std::uint64_t number, const CallReport& report) {
  while (reported_ - history_.size() + 1 < number) history_.pop_front();
  Descriptor other;
  std::memcpy(&other, report.calls.data() + (number - report.first) * sizeof other, sizeof other);
  const Descriptor own = history_.front();
  if (std::memcmp(&own, &other, sizeof own) == 0) return;
  has_difference_ = true;
  const auto called = [&](int rank, const Descriptor& descriptor) {
    return group_.endpoint->topology().describe(group_.member(rank)) + " called " + describe(descriptor);
  };
  std::string hint = "every rank must make the same calls in the same order";
  if (describe(own) == describe(other)) {
    hint = "they differ in uneven counts, scale, segments, or the number of calls through the queue before them";
  }
  throw Mismatch(
      fmt::format("in call {} in the caller's device order {}, but {}: {}; the devices have begun these calls, so that "
                  "their data is wrong (FARANDOLE_CHECK=strict compares before data is touched)",
                  number, called(group_.rank, own), called(compared_rank(), other), hint));
}

}  // namespace farandole
