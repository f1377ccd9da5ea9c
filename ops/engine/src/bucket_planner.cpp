// SPDX-License-Identifier: Apache-2.0
#include "bucket_planner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

// A held bucket is released this long after its last request was added.
constexpr std::chrono::milliseconds kReleaseDelay{25};
// A slot whose bucket has been broken up this often is not planned any more.
constexpr int kMaxBreaks = 3;

/// Requests with the same key can be reduced together.
auto fusion_key(const RequestSpec& spec) {
  return std::tuple(spec.op, spec.prescale, spec.postscale, spec.tensors.front().memory);
}

}  // namespace

void BucketPlanner::add(int slot, bool at_once, Time now) {
  released_.clear();
  Member& own = member(slot);
  own.is_submitted = true;
  if (own.bucket < 0) {
    released_.push_back(slot);
    return;
  }
  Bucket& planned = bucket(own.bucket);
  if (++planned.submitted_count == 1) held_.push_back(own.bucket);
  if (std::find(held_.begin(), held_.end(), own.bucket) == held_.end()) {
    // The rest of the bucket was released already, so the bucket will be broken up. Nothing else would release this
    // request.
    released_.push_back(slot);
    return;
  }
  planned.since = now;
  if (planned.submitted_count == planned.slots.size() || at_once) release(own.bucket);
}

void BucketPlanner::remove(int slot) {
  Member& own = member(slot);
  if (!std::exchange(own.is_submitted, false) || own.bucket < 0) return;
  if (--bucket(own.bucket).submitted_count == 0) std::erase(held_, own.bucket);
}

void BucketPlanner::remove_all() {
  for (Member& each : members_) each.is_submitted = false;
  for (Bucket& each : buckets_) each.submitted_count = 0;
  held_.clear();
}

void BucketPlanner::release_due(Time now) {
  released_.clear();
  for (std::size_t i = held_.size(); i-- > 0;) {
    if (bucket(held_[i]).since + kReleaseDelay <= now) release(held_[i]);
  }
}

BucketPlanner::Time BucketPlanner::next_release() const {
  Time earliest = Time::max();
  for (const int held : held_)
    earliest = std::min(earliest, buckets_[static_cast<std::size_t>(held)].since + kReleaseDelay);
  return earliest;
}

void BucketPlanner::release(int index) {
  if (std::erase(held_, index) == 0) return;
  for (const int slot : bucket(index).slots) {
    if (member(slot).is_submitted) released_.push_back(slot);
  }
}

void BucketPlanner::break_up(int index) {
  release(index);
  for (const int slot : bucket(index).slots) {
    member(slot).bucket = -1;
    ++member(slot).times_broken;
  }
  bucket(index) = {};
}

void BucketPlanner::forget(int slot) {
  released_.clear();
  if (member(slot).bucket >= 0) break_up(member(slot).bucket);
  member(slot) = {};
}

/// Complete buckets stay planned; the ready slots of incomplete buckets are grouped anew.
BucketPlanner::Arrangement BucketPlanner::arrange(std::vector<int> ready, const SlotTable& slots) {
  released_.clear();
  Arrangement arrangement;
  std::vector<int> planned;  // the bucket of each ready slot that has a bucket
  for (const int slot : ready) {
    if (member(slot).bucket >= 0) planned.push_back(member(slot).bucket);
  }
  std::sort(planned.begin(), planned.end());
  for (auto first = planned.begin(); first != planned.end();) {
    const auto last = std::upper_bound(first, planned.end(), *first);
    if (static_cast<std::size_t>(last - first) == bucket(*first).slots.size()) {
      arrangement.buckets.push_back(bucket(*first).slots);
    } else {
      ++arrangement.broken;
      break_up(*first);
    }
    first = last;
  }
  const std::size_t complete = arrangement.buckets.size();
  for (const int slot : ready) remove(slot);
  std::erase_if(ready, [&](int slot) { return member(slot).bucket >= 0; });
  if (ready.size() == 1) {
    arrangement.buckets.push_back(std::move(ready));
    return arrangement;
  }
  group(ready, slots, arrangement);
  for (std::size_t i = complete; i < arrangement.buckets.size(); ++i) plan(arrangement.buckets[i], slots);
  return arrangement;
}

void BucketPlanner::group(const std::vector<int>& unplanned, const SlotTable& slots, Arrangement& arrangement) const {
  struct Open {
    std::size_t index = 0, bytes = 0;
  };
  std::map<std::tuple<ReduceOp, double, double, MemoryKind>, Open> open;
  auto& buckets = arrangement.buckets;
  for (const int slot : unplanned) {
    const RequestSpec& spec = *slots[slot].spec;
    const std::size_t bytes = spec.size_in_bytes();
    if (spec.kind != RequestKind::kAllreduce || spec.adasum || !limits_.is_small(bytes, spec.tensors.front().memory)) {
      buckets.push_back({slot});
      continue;
    }
    const auto [found, is_first] = open.try_emplace(fusion_key(spec));
    Open& last = found->second;
    if (is_first || last.bytes + bytes > limits_.fusion_bytes) {
      last = {buckets.size(), 0};
      buckets.emplace_back();
    }
    last.bytes += bytes;
    buckets[last.index].push_back(slot);
  }
}

/// Slots that run together for the first time stay together in the plan.
void BucketPlanner::plan(const std::vector<int>& together, const SlotTable& slots) {
  // A `by_order` name is reused for other tensors, which may run together with other requests.
  if (together.size() < 2 || std::any_of(together.begin(), together.end(), [&](int slot) {
        return slots[slot].spec->by_order || member(slot).times_broken >= kMaxBreaks;
      }))
    return;
  auto free = std::find_if(buckets_.begin(), buckets_.end(), [](const Bucket& each) { return each.slots.empty(); });
  if (free == buckets_.end()) free = buckets_.emplace(buckets_.end());
  free->slots = together;
  for (const int slot : together) member(slot).bucket = static_cast<int>(free - buckets_.begin());
}

}  // namespace farandole
