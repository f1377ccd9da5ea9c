// SPDX-License-Identifier: Apache-2.0
#include "messages/slice_phases.h"

#include "operation/call.h"

namespace farandole {

std::vector<PlanRange> merge_adjacent(const std::vector<PlanRange>& ranges) {
  std::vector<PlanRange> found;
  for (const PlanRange& range : ranges) {
    if (range.count == 0) continue;
    if (!found.empty() && advanced(found.back().place, found.back().count) == range.place) {
      found.back().count += range.count;
    } else {
      found.push_back(range);
    }
  }
  return found;
}

PlanRange SlicePhases::scratch(std::size_t count) {
  const PlanRange range{{PlanPlace::Memory::kScratch, scratch_count_}, count};
  scratch_count_ += (count + granularity_ - 1) / granularity_ * granularity_;
  return range;
}

PlanRange SlicePhases::contiguous_input(const std::vector<PlanRange>& ranges) {
  return make_contiguous(ranges, [this](const PlanRange& range, PlanPlace place) {
    before_.push_back({range.place, place, range.count});
  });
}

PlanRange SlicePhases::contiguous_output(const std::vector<PlanRange>& ranges) {
  return make_contiguous(ranges, [this](const PlanRange& range, PlanPlace place) {
    results_.push_back({place, range.place, range.count});
  });
}

template <class Copy>
PlanRange SlicePhases::make_contiguous(const std::vector<PlanRange>& ranges, const Copy& copy) {
  const std::vector<PlanRange> merged = merge_adjacent(ranges);
  if (merged.empty()) return {};
  if (merged.size() == 1) return merged.front();
  std::size_t total = 0;
  for (const PlanRange& range : merged) total += range.count;
  const PlanRange all = scratch(total);
  std::size_t done = 0;
  for (const PlanRange& range : merged) {
    copy(range, advanced(all.place, done));
    done += range.count;
  }
  return all;
}

std::vector<PlanCopy> SlicePhases::take_results() {
  return std::exchange(results_, {});
}

HierarchicalPhase& SlicePhases::add(HierarchicalPhase::Where where, int stage, Collective collective,
                                    const PlanRange& input, const PlanRange& output) {
  HierarchicalPhase phase;
  phase.where = where;
  phase.collective = collective;
  phase.input = input.place;
  phase.input_count = input.count;
  phase.output = output.place;
  phase.output_count = output.count;
  phase.after = static_cast<int>(phases_.size()) - 1;
  phase.before = std::exchange(before_, {});
  phase.results = take_results();
  phase.prescales = reduces(collective) && !std::exchange(is_prescaled_, is_prescaled_ || reduces(collective));
  phase.postscales = reduces(collective) && where == HierarchicalPhase::Where::kAcross;
  phases_.push_back({stage, std::move(phase)});
  return last();
}

HierarchicalPhase& SlicePhases::inside(int stage, Collective collective, const PlanRange& input,
                                       const PlanRange& output, std::vector<std::size_t> counts, int root) {
  HierarchicalPhase& phase = add(HierarchicalPhase::Where::kInside, stage, collective, input, output);
  phase.counts = std::move(counts);
  phase.root = root;
  return phase;
}

HierarchicalPhase& SlicePhases::across(Collective collective, const PlanRange& input, const PlanRange& output,
                                       std::vector<std::size_t> counts, std::size_t total, int root) {
  HierarchicalPhase& phase = add(HierarchicalPhase::Where::kAcross, 1, collective, input, output);
  phase.counts = std::move(counts);
  phase.total = total;
  phase.root = root;
  return phase;
}

}  // namespace farandole
