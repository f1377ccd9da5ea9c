// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule_cache.h"

#include <algorithm>
#include <utility>

#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

constexpr std::size_t kProcessCapacity = 256;

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
  // Never destroyed: a fork may come at any time.
  static auto* const cache = [] {
    hold_at_forks<mutex_of_process>();
    return new ScheduleCache(kProcessCapacity);
  }();
  return *cache;
}

std::shared_ptr<const PreparedSchedule> ScheduleCache::get(const Algorithm& algorithm, const Place& place,
                                                           int segments) {
  const auto is_wanted = [&](const Entry& entry) {
    return entry.algorithm == &algorithm && entry.segments == segments && entry.place.rank == place.rank &&
           entry.place.size == place.size && entry.place.root == place.root;
  };
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), is_wanted);
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->prepared;
  }
  auto prepared = std::make_shared<const PreparedSchedule>(algorithm.make(place, segments));
  entries_.push_front({&algorithm, place, segments, prepared});
  if (entries_.size() > capacity_) entries_.pop_back();
  return prepared;
}

}  // namespace farandole
