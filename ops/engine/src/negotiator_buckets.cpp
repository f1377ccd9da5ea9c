// SPDX-License-Identifier: Apache-2.0
// Slots, and the buckets that they form.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "negotiator.h"

namespace farandole {
namespace {

// A request whose bucket has been broken this often stays alone.
constexpr int kMostBreaks = 3;

bool may_fuse(const RequestSpec& spec, const Negotiator::Limits& limits) {
  return spec.kind == RequestKind::kAllreduce && !spec.adasum && spec.size_in_bytes() < limits.min_unfused_bytes;
}

/// Requests with the same key can be reduced together.
auto fusion_key(const RequestSpec& spec) {
  return std::tuple(spec.op, spec.prescale, spec.postscale);
}

}  // namespace

void Negotiator::take_slot(Pending& pending, int index, Time now) {
  Slot& own = slot(index);
  pending.slot = index;
  own.pending = &pending;
  if (own.bucket < 0) {
    mark_ready(index);
    return;
  }
  Bucket& bucket = buckets_[static_cast<std::size_t>(own.bucket)];
  if (++bucket.ready == 1) held_buckets_.push_back(own.bucket);
  if (std::find(held_buckets_.begin(), held_buckets_.end(), own.bucket) == held_buckets_.end()) {
    // A part of the bucket has been announced already, so it will be broken up; and no rank would think of it again.
    mark_ready(index);
    return;
  }
  bucket.since = now;
  if (bucket.ready == bucket.slots.size() || pending.waiting == Waiting::kCaller) mark_bucket_ready(own.bucket);
}

void Negotiator::mark_bucket_ready(int bucket) {
  for (const int index : buckets_[static_cast<std::size_t>(bucket)].slots) {
    if (slot(index).pending != nullptr) mark_ready(index);
  }
  std::erase(held_buckets_, bucket);
}

/// Planned buckets that are complete stay as they are; of the others, what is ready goes loose.
void Negotiator::arrange(const std::vector<int>& ready, Outcome& outcome) {
  std::map<int, std::size_t> ready_of_bucket;
  for (const int index : ready) {
    if (slot(index).bucket >= 0) ++ready_of_bucket[slot(index).bucket];
  }
  for (const auto& [bucket, count] : ready_of_bucket) {
    const std::vector<int> slots = buckets_[static_cast<std::size_t>(bucket)].slots;
    if (count < slots.size()) {
      ++counters_.broken_buckets;
      break_up(bucket);
      continue;
    }
    std::vector<Agreed> together;
    for (const int index : slots) together.push_back(take(index));
    outcome.buckets.push_back(std::move(together));
  }
  std::vector<int> loose;
  for (const int index : ready) {
    if (slot(index).bucket < 0) loose.push_back(index);
  }
  arrange_loose(loose, outcome);
}

void Negotiator::break_up(int bucket) {
  Bucket& broken = buckets_[static_cast<std::size_t>(bucket)];
  std::erase(held_buckets_, bucket);
  for (const int index : broken.slots) {
    slot(index).bucket = -1;
    ++slot(index).times_broken;
    if (slot(index).pending != nullptr) mark_ready(index);
  }
  broken = {};
}

/// Small allreduces of one kind that are ready together become a bucket, from now on.
void Negotiator::arrange_loose(const std::vector<int>& loose, Outcome& outcome) {
  struct Open {
    std::size_t bytes = 0;
    std::vector<int> slots;
  };
  std::vector<Open> groups;
  std::map<std::tuple<ReduceOp, double, double>, std::size_t> current;
  for (const int index : loose) {
    const RequestSpec& spec = *slot(index).spec;
    const std::size_t bytes = spec.size_in_bytes();
    if (!may_fuse(spec, limits_)) {
      groups.push_back({bytes, {index}});
      continue;
    }
    const auto [found, is_first] = current.try_emplace(fusion_key(spec), groups.size());
    if (is_first || groups[found->second].bytes + bytes > limits_.fusion_bytes) {
      found->second = groups.size();
      groups.emplace_back();
    }
    groups[found->second].bytes += bytes;
    groups[found->second].slots.push_back(index);
  }
  for (const Open& group : groups) {
    std::vector<Agreed> together;
    for (const int index : group.slots) together.push_back(take(index));
    outcome.buckets.push_back(std::move(together));
    // Names by order come again for other tensors, and in other company.
    const bool stays = group.slots.size() > 1 && std::none_of(group.slots.begin(), group.slots.end(), [&](int index) {
                         return slot(index).spec->by_order || slot(index).times_broken >= kMostBreaks;
                       });
    if (!stays) continue;
    auto free = std::find_if(buckets_.begin(), buckets_.end(), [](const Bucket& each) { return each.slots.empty(); });
    if (free == buckets_.end()) free = buckets_.emplace(buckets_.end());
    free->slots = group.slots;
    for (const int index : group.slots) slot(index).bucket = static_cast<int>(free - buckets_.begin());
  }
}

/// The slot is free again; what this rank has pending in it is announced by name.
void Negotiator::retire(int index) {
  Slot& own = slot(index);
  if (own.bucket >= 0) break_up(own.bucket);
  if (own.pending != nullptr) {
    Pending& pending = *own.pending;
    announce_later(pending);
  }
  slot_of_.erase(own.spec->name);
  own = {};
  byte(index) = 0;
  free_slots_.push_back(index);
}

int Negotiator::new_slot(SharedSpec spec, bool in_step) {
  if (free_slots_.empty() && slots_.size() >= limits_.slots) {
    const auto least = std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return a.last_negotiation < b.last_negotiation;
    });
    // What came in this negotiation is in use; then the table grows all the same.
    if (least->last_negotiation < counters_.negotiations) retire(static_cast<int>(least - slots_.begin()));
  }
  int index = static_cast<int>(slots_.size());
  if (free_slots_.empty()) {
    slots_.emplace_back();
    bytes_.push_back(0);
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  slot_of_[spec->name] = index;
  slot(index).spec = std::move(spec);
  slot(index).in_step = in_step;
  slot(index).last_negotiation = counters_.negotiations;
  return index;
}

}  // namespace farandole
