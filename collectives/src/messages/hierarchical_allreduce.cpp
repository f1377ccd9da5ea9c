// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_allreduce.h"

#include <fmt/core.h>

#include <algorithm>

#include "messages/scheduled_collective.h"
#include "operation/method_inputs.h"
#include "shared_memory/shm_operation.h"

namespace farandole {
namespace {

std::string explain_hierarchical(Collective, std::size_t bytes, const Group& group) {
  return fmt::format("the ranks live on several hosts and share memory on each: {}",
                     bytes <= group.one_shot_bytes
                         ? "reduced to each host's first rank, among these, and broadcast on each host"
                         : "each rank allreduces its part of its host's sum with its counterparts");
}

}  // namespace

constinit const Method kHierarchicalMethod{
    .name = "hierarchical",
    .number = 0xfc,
    .needs = "several hosts, one of them with several ranks, and FARANDOLE_SHARED_MEMORY on",
    .is_preferred = true,
    .supports = [](Collective collective) { return collective == Collective::kAllreduce; },
    .fits = [](const TuningShape& shape) { return shape.hosts > 1 && shape.ranks > shape.hosts; },
    .is_available = [](const SelectionQuery& query, bool) { return query.has_hierarchy; },
    // Comparisons by messages end in any order; what follows in shared memory begins in the order of the calls.
    .announce =
        [](const MethodInputs& inputs) {
          if (inputs.host != nullptr) inputs.host->announce(2 * inputs.sequence);
        },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<HierarchicalAllreduce>(inputs.group, *inputs.hierarchy, inputs.host, inputs.call,
                                                     inputs.descriptor, inputs.sequence);
    },
    .explain = explain_hierarchical,
};

HierarchicalAllreduce::HierarchicalAllreduce(const Group& group, const Hierarchy& hierarchy, ShmGroup* host,
                                             const Call& call, const Descriptor& descriptor, std::uint64_t sequence)
    : group_(group),
      hierarchy_(hierarchy),
      host_(host),
      call_(call),
      descriptor_(descriptor),
      sequence_(sequence),
      by_parts_(hierarchy.equal && host != nullptr && call.input.size_in_bytes() > group.one_shot_bytes) {
  const std::size_t granularity = std::max<std::size_t>(1, 128 / size_in_bytes(call.input.dtype));
  if (by_parts_) parts_ = balanced_offsets(call.input.count, hierarchy.local_size, 1, granularity);
  for (std::size_t i = 0; i + 1 < parts_.size(); ++i) counts_.push_back(parts_[i + 1] - parts_[i]);
}

Operation::State HierarchicalAllreduce::advance() {
  bool moved = false;
  while (phase_ != Phase::kDone) {
    if (!running_) begin();
    // A phase in which this rank has nothing to do leaves nothing to run.
    const State state = running_ ? running_->advance() : State::kDone;
    moved = moved || state != State::kWaiting;
    if (state != State::kDone) return moved ? State::kMoved : State::kWaiting;
    running_.reset();
    phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
  }
  return State::kDone;
}

void HierarchicalAllreduce::begin() {
  if (phase_ == Phase::kInside) {
    begin_inside();
  } else if (phase_ == Phase::kAcross) {
    begin_across();
  } else {
    begin_back();
  }
}

Call HierarchicalAllreduce::inner_call(Collective collective) const {
  Call call;
  call.collective = collective;
  call.op = inner_op();
  call.counts = counts_;
  if (!by_parts_) call.root = 0;
  return call;
}

/// An average is a sum, scaled once all has been added.
ReduceOp HierarchicalAllreduce::inner_op() const {
  return call_.op == ReduceOp::kAverage ? ReduceOp::kSum : call_.op;
}

BufferView HierarchicalAllreduce::own_values() const {
  if (!by_parts_) return call_.output;
  const Extent own = extent_of(parts_, hierarchy_.local_rank);
  return call_.output.part(own.first, own.count);
}

std::unique_ptr<Operation> HierarchicalAllreduce::run_inside(std::uint64_t number) {
  Descriptor descriptor = descriptor_;
  descriptor.collective = inner_.collective;
  auto operation =
      std::make_unique<ShmOperation>(group_, *host_, inner_, descriptor, number, ShmOperation::Purpose::kCollective);
  // Until it begins, later collectives may begin and end.
  if (phase_ == Phase::kInside) operation->set_followed_by(2 * sequence_ + 1);
  return operation;
}

void HierarchicalAllreduce::begin_inside() {
  if (host_ == nullptr) {
    copy_scaled(call_.output.data, call_.input, call_.prescale);
    return;
  }
  inner_ = inner_call(by_parts_ ? Collective::kReduceScatter : Collective::kReduce);
  inner_.prescale = call_.prescale;
  inner_.input = call_.input;
  inner_.output = own_values();
  running_ = run_inside(2 * sequence_);
}

void HierarchicalAllreduce::begin_across() {
  if (!by_parts_ && !hierarchy_.is_leader) return;
  const Group& across = by_parts_ ? hierarchy_.across : hierarchy_.leaders;
  const BufferView values = own_values();
  // The same on all ranks that meet here, whatever the length of the own part.
  const std::size_t bytes =
      call_.input.size_in_bytes() / (by_parts_ ? static_cast<std::size_t>(hierarchy_.local_size) : 1);
  SelectionQuery query;
  query.bytes = bytes;
  query.size = across.size();
  query.link = across.route(across.rank == 0 ? 1 : 0).cost();
  const Candidate chosen = candidates(query, group_.endpoint->settings()).front();
  inner_ = Call{};
  inner_.collective = Collective::kAllreduce;
  inner_.input = values;
  inner_.output = values;
  inner_.op = inner_op();
  inner_.postscale = final_scale(call_, group_.size());
  running_ = std::make_unique<ScheduledCollective>(across, inner_,
                                                   Selection::schedule(*chosen.algorithm, chosen.segments), sequence_);
}

void HierarchicalAllreduce::begin_back() {
  if (host_ == nullptr) return;
  inner_ = inner_call(by_parts_ ? Collective::kAllgather : Collective::kBroadcast);
  inner_.input = own_values();
  inner_.output = call_.output;
  running_ = run_inside(2 * sequence_ + 1);
}

std::vector<int> HierarchicalAllreduce::waits_for() const {
  return running_ ? running_->waits_for() : std::vector<int>{};
}

}  // namespace farandole
