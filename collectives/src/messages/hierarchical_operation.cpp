// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_operation.h"

#include <algorithm>
#include <cstring>

#include "farandole/core/float_mode.h"
#include "messages/scheduled_collective.h"
#include "operation/method_inputs.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

// Minimum size of a slice. With shorter slices the waiting between phases costs more than the overlap gains.
constexpr std::size_t kSliceBytes = std::size_t{1} << 20;
static_assert(kMaxInsidePhases <= static_cast<int>(LaneLedger::kNumbersPerCollective));

bool is_sliced(Collective collective, const Hierarchy& hierarchy) {
  if (collective == Collective::kAllgather) return !gathers_in_place(hierarchy);
  return collective == Collective::kAllreduce || collective == Collective::kBroadcast ||
         collective == Collective::kReduce;
}

/// Additional copies of each byte in a hierarchical alltoall: two on the sending side, two on the receiving side.
constexpr double kAlltoallCopies = 4;

/// True except for an alltoall of long blocks: there the copies that combine blocks into one message per pair of hosts
/// cost more than the saved messages.
bool is_cheapest_hierarchy(const SelectionQuery& query) {
  if (query.collective != Collective::kAlltoall) return true;
  if (query.hosts == 0) return false;
  const FloatMode mode;  // all ranks must compute the same answer, whatever floating-point mode their threads are in
  const Algorithm& pairwise = *find_algorithm(Collective::kAlltoall, "pairwise");
  SelectionQuery across = query;
  across.size = query.hosts;
  return predict_us(pairwise, 1, across) + kAlltoallCopies * kCopyUsPerByte * static_cast<double>(query.bytes) <
         predict_us(pairwise, 1, query);
}

std::string explain_hierarchical(Collective collective, std::size_t bytes, const Group& group) {
  const std::string text = "the ranks live on several hosts and share memory on each: ";
  if (collective == Collective::kBarrier || bytes <= group.one_shot_bytes) {
    return text + "one rank of each host exchanges messages with other hosts for all of its ranks";
  }
  return text + "ranks of each host, as many as the smallest one has, each exchange a part with their counterparts";
}

}  // namespace

constinit const Method kHierarchicalMethod{
    .name = "hierarchical",
    .number = 0xfc,
    .needs = "several hosts, one of them with several ranks, and FARANDOLE_SHARED_MEMORY on",
    .is_preferred = true,
    .is_cheapest = is_cheapest_hierarchy,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape& shape) { return shape.hosts > 1 && shape.ranks > shape.hosts; },
    .is_available =
        [](const SelectionQuery& query, bool) {
          // A plan needs the counts of all ranks; in an alltoall with counts no rank knows them.
          return query.hosts > 0 && query.bytes != kUnknownBytes;
        },
    // Announce at the call: comparisons by messages may end in any order, but operations in shared memory must begin in
    // the order of calls.
    .announce =
        [](const MethodInputs& inputs) {
          if (inputs.host != nullptr) inputs.host->ledger().announce(LaneLedger::first_number(inputs.sequence));
        },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<HierarchicalOperation>(inputs.group, *inputs.plans, inputs.host, inputs.prepared.call,
                                                     inputs.prepared.descriptor, inputs.sequence);
    },
    .explain = explain_hierarchical,
};

HierarchicalQuery hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                     std::size_t one_shot_bytes) {
  HierarchicalQuery query = query_of(call, size);
  const std::size_t element_bytes = size_in_bytes(call.input.dtype);
  query.granularity = std::max<std::size_t>(1, kLineBytes / element_bytes);
  if (call.collective == Collective::kBarrier) return query;
  const std::size_t bytes = PreparedCall(call, size).total * element_bytes;
  const int max_carriers = hierarchy.min_local_size();
  // If every rank carries its own block, skip the gather inside the host. Not for reductions: their blocks exist only
  // after the reduction inside the host.
  const bool keeps_blocks = !query.counts.empty() && !is_rooted(call.collective) && !reduces(call.collective) &&
                            max_carriers * hierarchy.host_count() == size;
  if (bytes > one_shot_bytes || keeps_blocks) query.carriers = max_carriers;
  if (is_sliced(call.collective, hierarchy)) {
    query.slices = static_cast<int>(std::clamp<std::size_t>(bytes / kSliceBytes, 1, kMaxSlices));
  }
  return query;
}

HierarchicalOperation::HierarchicalOperation(const Group& group, PreparedPlans& plans, ShmGroup* host, const Call& call,
                                             const Descriptor& descriptor, std::uint64_t sequence)
    : group_(group),
      host_(host),
      call_(call),
      descriptor_(descriptor),
      sequence_(sequence),
      prepared_(plans.get(hierarchical_query(call, plans.hierarchy(), group.size(), group.one_shot_bytes),
                          size_in_bytes(call.input.dtype))),
      scratch_(plan().scratch_count * size_in_bytes(call.input.dtype)),
      memory_{call.input.data, call.output.data, scratch_.data(), size_in_bytes(call.input.dtype)},
      is_complete_(plan().phases.size()) {
  for (std::size_t index = 0; index < plan().phases.size(); ++index) {
    tracks_[static_cast<std::size_t>(plan().phases[index].where)].phases.push_back(index);
  }
}

Operation::State HierarchicalOperation::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (Track& track : tracks_) again = advance(track) == State::kMoved || again;
    moved = moved || again;
  }
  const bool is_done = std::all_of(tracks_.begin(), tracks_.end(), [](const Track& track) { return track.is_done(); });
  if (is_done) return State::kDone;
  return moved ? State::kMoved : State::kWaiting;
}

Operation::State HierarchicalOperation::advance(Track& track) {
  if (track.is_done()) return State::kDone;
  const std::size_t index = track.phases[track.at];
  const HierarchicalPhase& phase = plan().phases[index];
  if (!track.running) {
    if (phase.after >= 0 && !is_complete_[static_cast<std::size_t>(phase.after)]) return State::kWaiting;
    track.running = begin(index, track);
  }
  if (const State state = track.running->advance(); state != State::kDone) return state;
  track.running.reset();
  copy(phase.results);
  is_complete_[index] = true;
  ++track.at;
  return State::kMoved;
}

std::unique_ptr<Operation> HierarchicalOperation::begin(std::size_t index, Track& track) {
  const HierarchicalPhase& phase = plan().phases[index];
  copy(phase.before);
  track.call = call_of(phase, call_, memory_);
  return phase.where == Where::kInside ? begin_inside(track) : begin_across(index, track.call);
}

void HierarchicalOperation::copy(const std::vector<PlanCopy>& copies) const {
  for (const PlanCopy& each : copies) {
    if (each.count == 0) continue;
    std::memcpy(memory_.at(each.to), memory_.at(each.from), each.count * memory_.element_bytes);
  }
}

std::unique_ptr<Operation> HierarchicalOperation::begin_inside(Track& track) {
  PreparedCall& prepared = track.prepared.emplace(track.call, host_->size());
  prepared.descriptor = descriptor_;
  prepared.descriptor.collective = track.call.collective;
  const std::uint64_t number = LaneLedger::first_number(sequence_) + track.at;
  auto operation = std::make_unique<ShmOperation>(group_, *host_, prepared, number, ShmOperation::Purpose::kCollective);
  // Later collectives may begin and end before the next inside phase of this collective begins.
  if (track.at + 1 < track.phases.size()) operation->set_followed_by(number + 1);
  return operation;
}

std::unique_ptr<Operation> HierarchicalOperation::begin_across(std::size_t index, const Call& call) {
  const std::size_t bytes = plan().phases[index].total * size_in_bytes(call.input.dtype);
  return std::make_unique<ScheduledCollective>(prepared_->across, call, bytes, prepared_->selections[index], sequence_);
}

std::vector<int> HierarchicalOperation::waits_for() const {
  std::vector<int> ranks;
  for (const Track& track : tracks_) {
    if (!track.running) continue;
    const std::vector<int> more = track.running->waits_for();
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  return ranks;
}

BufferHazard HierarchicalOperation::withdraw() {
  auto worst = BufferHazard::kNone;
  for (const Track& track : tracks_) {
    if (track.running) worst = std::max(worst, track.running->withdraw());
  }
  return worst;
}

}  // namespace farandole
