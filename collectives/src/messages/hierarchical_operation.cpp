// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "farandole/core/float_mode.h"
#include "messages/scheduled_collective.h"
#include "operation/method_inputs.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

// Parts of a vector that pass through the phases one behind the other: shorter ones cost more in waiting than they
// gain.
constexpr std::size_t kSliceBytes = std::size_t{1} << 20;
constexpr int kMostSlices = 8;
static_assert(most_inside_phases(kMostSlices) <= static_cast<int>(ShmGroup::kNumbers));

bool is_sliced(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kBroadcast ||
         collective == Collective::kAllgather;
}

/// A copy of what a rank sends and receives in an alltoall by hosts, twice each, against messages between all ranks.
constexpr double kCopyUsPerByte = 1e-4;
constexpr double kCopies = 4;

/// Of an alltoall long blocks are faster without the copies that bring them to one message per pair of hosts.
bool is_cheapest_hierarchy(const SelectionQuery& query) {
  if (query.collective != Collective::kAlltoall) return true;
  if (query.hosts == 0) return false;
  const FloatMode mode;  // the ranks must find the same, whatever mode their threads are in
  const Algorithm& pairwise = *find_algorithm(Collective::kAlltoall, "pairwise");
  SelectionQuery across = query;
  across.size = query.hosts;
  return predict_us(pairwise, 1, across) + kCopies * kCopyUsPerByte * static_cast<double>(query.bytes) <
         predict_us(pairwise, 1, query);
}

std::string explain_hierarchical(Collective collective, std::size_t bytes, const Group& group) {
  const std::string text = "the ranks live on several hosts and share memory on each: ";
  if (collective == Collective::kBarrier || bytes <= group.one_shot_bytes) {
    return text + "one rank of each host exchanges messages with other hosts for all of its ranks";
  }
  return text + "ranks of each host, as many as the smallest one has, each exchange a part with their counterparts";
}

/// Of these algorithms a byte may cross to a host more often than once.
bool forwards(const Algorithm& algorithm) {
  switch (algorithm.collective) {
    case Collective::kBroadcast:
      return algorithm.name == "scatter_allgather";
    case Collective::kGather:
    case Collective::kScatter:
      return algorithm.name == "binomial";
    default:
      return false;
  }
}

/// An average is a sum, scaled once all has been added.
ReduceOp inner_op(const Call& call) {
  return call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op;
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
          // What ranks do not know of each other they can not plan.
          return query.hosts > 0 && query.bytes != kUnknownBytes;
        },
    // Comparisons by messages end in any order; what follows in shared memory begins in the order of the calls.
    .announce =
        [](const MethodInputs& inputs) {
          if (inputs.host != nullptr) inputs.host->announce(ShmGroup::first_number(inputs.sequence));
        },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<HierarchicalOperation>(inputs.group, *inputs.hierarchy, inputs.host, inputs.call,
                                                     inputs.descriptor, inputs.sequence);
    },
    .explain = explain_hierarchical,
};

HierarchicalQuery hierarchical_query(const Call& call, const Hierarchy& hierarchy, int size,
                                     std::size_t one_shot_bytes) {
  HierarchicalQuery query;
  const std::size_t element_bytes = size_in_bytes(call.input.dtype);
  const std::size_t bytes = total_count(call, size) * element_bytes;
  query.collective = call.collective;
  query.root = call.root;
  query.granularity = std::max<std::size_t>(1, kLineBytes / element_bytes);
  switch (call.collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      query.count = call.input.count;
      break;
    case Collective::kBarrier:
      return query;
    default:
      query.counts = parts_of(call, size).to_vector();
  }
  const int most = hierarchy.least_local_size();
  // Where each rank can carry its own blocks no rank need collect them first.
  const bool keeps_blocks =
      !query.counts.empty() && !is_rooted(call.collective) && most * hierarchy.host_count() == size;
  if (bytes > one_shot_bytes || keeps_blocks) query.carriers = most;
  if (is_sliced(call.collective)) {
    query.slices = static_cast<int>(std::clamp<std::size_t>(bytes / kSliceBytes, 1, kMostSlices));
  }
  return query;
}

HierarchicalOperation::HierarchicalOperation(const Group& group, const Hierarchy& hierarchy, ShmGroup* host,
                                             const Call& call, const Descriptor& descriptor, std::uint64_t sequence)
    : group_(group),
      host_(host),
      call_(call),
      descriptor_(descriptor),
      sequence_(sequence),
      plan_(plan_hierarchical(hierarchical_query(call, hierarchy, group.size(), group.one_shot_bytes), hierarchy)),
      across_(group_across(group, plan_.across)),
      scratch_(plan_.scratch_count * size_in_bytes(call.input.dtype)),
      is_complete_(plan_.phases.size()) {
  for (std::size_t index = 0; index < plan_.phases.size(); ++index) {
    tracks_[static_cast<std::size_t>(plan_.phases[index].where)].phases.push_back(index);
  }
}

Operation::State HierarchicalOperation::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    for (Track& track : tracks_) again = advance(track) == State::kMoved || again;
    moved = moved || again;
  }
  const bool is_over = std::all_of(tracks_.begin(), tracks_.end(), [](const Track& track) { return track.is_over(); });
  if (is_over) return State::kDone;
  return moved ? State::kMoved : State::kWaiting;
}

Operation::State HierarchicalOperation::advance(Track& track) {
  if (track.is_over()) return State::kDone;
  const std::size_t index = track.phases[track.at];
  const HierarchicalPhase& phase = plan_.phases[index];
  if (!track.running) {
    if (phase.after >= 0 && !is_complete_[static_cast<std::size_t>(phase.after)]) return State::kWaiting;
    track.running = begin(phase, track);
  }
  if (const State state = track.running->advance(); state != State::kDone) return state;
  track.running.reset();
  copy(phase.results);
  is_complete_[index] = true;
  ++track.at;
  return State::kMoved;
}

std::unique_ptr<Operation> HierarchicalOperation::begin(const HierarchicalPhase& phase, Track& track) {
  copy(phase.before);
  track.call = call_of(phase);
  return phase.where == Where::kInside ? begin_inside(track) : begin_across(phase, track.call);
}

const std::byte* HierarchicalOperation::at(const PlanPlace& place) const {
  const std::size_t first = place.first * size_in_bytes(call_.input.dtype);
  switch (place.memory) {
    case PlanPlace::Memory::kInput:
      return static_cast<const std::byte*>(call_.input.data) + first;
    case PlanPlace::Memory::kOutput:
      return static_cast<const std::byte*>(call_.output.data) + first;
    case PlanPlace::Memory::kScratch:
      return scratch_.data() + first;
    case PlanPlace::Memory::kNone:
      break;
  }
  return nullptr;
}

void HierarchicalOperation::copy(const std::vector<PlanCopy>& copies) const {
  for (const PlanCopy& one : copies) {
    if (one.count == 0) continue;
    std::memcpy(const_cast<std::byte*>(at(one.to)), at(one.from), one.count * size_in_bytes(call_.input.dtype));
  }
}

Call HierarchicalOperation::call_of(const HierarchicalPhase& phase) const {
  Call call;
  call.collective = phase.collective;
  call.root = phase.root;
  call.op = inner_op(call_);
  call.input = {at(phase.input), phase.input_count, call_.input.dtype};
  call.output = {const_cast<std::byte*>(at(phase.output)), phase.output_count, call_.input.dtype};
  call.counts = phase.counts;
  call.recv_counts = phase.recv_counts;
  if (phase.prescales) call.prescale = call_.prescale;
  if (phase.postscales) call.postscale = final_scale(call_, group_.size());
  return call;
}

std::unique_ptr<Operation> HierarchicalOperation::begin_inside(const Track& track) {
  Descriptor descriptor = descriptor_;
  descriptor.collective = track.call.collective;
  const std::uint64_t number = ShmGroup::first_number(sequence_) + track.at;
  auto operation = std::make_unique<ShmOperation>(group_, *host_, track.call, descriptor, number,
                                                  ShmOperation::Purpose::kCollective);
  // Until the next one begins, later collectives may begin and end.
  if (track.at + 1 < track.phases.size()) operation->set_followed_by(number + 1);
  return operation;
}

std::unique_ptr<Operation> HierarchicalOperation::begin_across(const HierarchicalPhase& phase, const Call& call) {
  SelectionQuery query;
  query.collective = call.collective;
  query.bytes = phase.total * size_in_bytes(call.input.dtype);
  query.size = across_.size();
  query.link = across_.route(across_.rank == 0 ? 1 : 0).cost();
  const std::vector<Candidate> all = candidates(query, group_.endpoint->settings());
  const auto chosen =
      std::find_if(all.begin(), all.end(), [](const Candidate& one) { return !forwards(*one.algorithm); });
  return std::make_unique<ScheduledCollective>(across_, call, query.bytes,
                                               Selection::schedule(*chosen->algorithm, chosen->segments), sequence_);
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

Aftermath HierarchicalOperation::withdraw() {
  auto worst = Aftermath::kNone;
  for (const Track& track : tracks_) {
    if (track.running) worst = std::max(worst, track.running->withdraw());
  }
  return worst;
}

}  // namespace farandole
