// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule_cache.h"

#include <algorithm>
#include <utility>

#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

constexpr std::size_t kProcessCapacity = 256;  // schedules

}  // namespace

PreparedSchedule::PreparedSchedule(Schedule made) : schedule(std::move(made)) {
  const std::size_t count = schedule.steps.size();
  waits.resize(count);
  on_complete.resize(count);
  on_start.assign(count, -1);
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = schedule.steps[i];
    waits[i] = static_cast<int>(step.after.size()) + (step.posted_after >= 0 ? 1 : 0);
    for (const int before : step.after) on_complete[static_cast<std::size_t>(before)].push_back(static_cast<int>(i));
    if (step.kind != StepKind::kSend && step.target.space == Space::kData) {
      first_written = end_written == 0 ? step.target.first : std::min(first_written, step.target.first);
      end_written = std::max(end_written, step.target.first + step.target.count);
    }
    if (step.posted_after >= 0) on_start[static_cast<std::size_t>(step.posted_after)] = static_cast<int>(i);
  }
}

const StreamProgram& PreparedSchedule::stream_program() const {
  std::call_once(stream_program_once_, [this] { stream_program_ = make_stream_program(schedule); });
  return stream_program_;
}

ScheduleCache& ScheduleCache::of_process() {
  // Never destroyed, because the fork handler locks the mutex even while the process ends.
  static auto* const cache = [] {
    hold_at_forks<mutex_of_process>();
    return new ScheduleCache(kProcessCapacity);
  }();
  return *cache;
}

std::shared_ptr<const PreparedSchedule> ScheduleCache::get(const Algorithm& algorithm, const Place& place,
                                                           int segments) {
  const Key key{&algorithm, place, segments};
  const std::lock_guard lock(mutex_);
  if (const auto* const kept = kept_.find(key)) return *kept;
  auto prepared = std::make_shared<const PreparedSchedule>(algorithm.make(place, segments));
  kept_.add(key, prepared);
  return prepared;
}

}  // namespace farandole
