// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_plan.h"

#include <algorithm>

namespace farandole {

ShmPlan::ShmPlan(const ShmFacts& facts) : facts_(facts) {
  const bool inputs = facts.reaches_inputs;
  const bool outputs = facts.reaches_outputs;
  const bool copies = facts.copies_inputs;
  switch (facts.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
      uses_ = {!inputs, true, !outputs};
      reads_inputs_ = inputs;
      writes_outputs_ = outputs;
      break;
    case Collective::kReduceScatter:
      uses_ = {!inputs, true, false};
      reads_inputs_ = inputs;
      break;
    case Collective::kScatter:
    case Collective::kAlltoall:
      reads_inputs_ = inputs || copies;
      uses_ = {!reads_inputs_, true, false};
      break;
    case Collective::kBroadcast:
    case Collective::kAllgather:
    case Collective::kGather:
      // Use one or the other: reading inputs in place saves the same copy as writing outputs in place.
      reads_inputs_ = inputs || (copies && !outputs);
      writes_outputs_ = outputs && !reads_inputs_;
      uses_ = {false, !reads_inputs_, !writes_outputs_};
      break;
    case Collective::kBarrier:
      break;
  }
  used_ = static_cast<int>(std::count(uses_.begin(), uses_.end(), true));
}

/// Number of used stages that come before `stage`: the stage's delay in slices.
int ShmPlan::index(ShmStage stage) const {
  return static_cast<int>(std::count(uses_.begin(), uses_.begin() + static_cast<int>(stage), true));
}

bool ShmPlan::is_first(ShmStage stage) const {
  return uses(stage) && index(stage) == 0;
}

bool ShmPlan::is_active(ShmStage stage, int rank) const {
  const bool is_root = rank == facts_.root;
  switch (facts_.collective) {
    case Collective::kReduce:
      return stage != ShmStage::kCopyOut || is_root;
    case Collective::kGather:
    case Collective::kScatter:
      return stage == ShmStage::kReduce || is_root;
    case Collective::kBroadcast:
      return (stage == ShmStage::kReduce) == is_root;
    default:
      return true;
  }
}

int ShmPlan::source(ShmStage stage) const {
  const bool from_root = facts_.collective == Collective::kScatter || facts_.collective == Collective::kBroadcast;
  (void)stage;
  return from_root ? facts_.root : -1;
}

ShmPlan::Step ShmPlan::first() const {
  const auto stage = std::find(uses_.begin(), uses_.end(), true) - uses_.begin();
  return {static_cast<ShmStage>(stage), 0};
}

/// Finds the next used stage that has a slice at the same time, else at a later time.
ShmPlan::Step ShmPlan::after(const Step& step) const {
  std::size_t time = step.slice + static_cast<std::size_t>(index(step.stage));
  auto next = static_cast<std::size_t>(step.stage) + 1;
  for (;;) {
    for (; next < kShmStages; ++next) {
      const auto stage = static_cast<ShmStage>(next);
      const auto behind = static_cast<std::size_t>(index(stage));
      if (uses(stage) && time >= behind && time - behind < slices_) return {stage, time - behind};
    }
    ++time;
    next = 0;
    if (time > slices_ + kShmStages) return {ShmStage::kCopyIn, slices_};
  }
}

std::uint64_t ShmPlan::done_after(ShmStage stage, std::size_t slice) const {
  const int own = index(stage);
  const auto time = static_cast<std::int64_t>(slice) + own;
  std::int64_t done = 0;
  for (int other = 0; other < used_; ++other) {
    // Slices that the other stage has finished: all of earlier times; for `stage` and the stages before it, also the
    // slice of the current time.
    const std::int64_t slices = time - other + (other <= own ? 1 : 0);
    done += std::clamp<std::int64_t>(slices, 0, static_cast<std::int64_t>(slices_));
  }
  return static_cast<std::uint64_t>(done);
}

}  // namespace farandole
