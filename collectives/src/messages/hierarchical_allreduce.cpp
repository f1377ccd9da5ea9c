// SPDX-License-Identifier: Apache-2.0
#include "messages/hierarchical_allreduce.h"

#include <algorithm>
#include <cstring>

#include "farandole/core/reduce.h"
#include "schedule/schedule_cache.h"
#include "shared_memory/shm_operation.h"

namespace farandole {

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
  call.op = call_.op == ReduceOp::kAverage ? ReduceOp::kSum : call_.op;
  call.counts = counts_;
  if (!by_parts_) call.root = 0;
  return call;
}

BufferView HierarchicalAllreduce::own_values() const {
  if (!by_parts_) return call_.output;
  const auto own = static_cast<std::size_t>(hierarchy_.local_rank);
  return call_.output.part(parts_[own], parts_[own + 1] - parts_[own]);
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
    if (call_.prescale != 1.0) {
      scale(call_.output.data, call_.input.data, call_.input.count, call_.input.dtype, call_.prescale);
    } else if (call_.output.data != call_.input.data && call_.input.count > 0) {
      std::memcpy(call_.output.data, call_.input.data, call_.input.size_in_bytes());
    }
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
  Execution execution;
  execution.prepared =
      ScheduleCache::of_process().get(*chosen.algorithm, {across.rank, across.size(), 0}, chosen.segments);
  const Schedule& schedule = execution.prepared->schedule;
  const std::size_t granularity = std::max<std::size_t>(1, 64 / size_in_bytes(values.dtype));
  execution.offsets = balanced_offsets(values.count, schedule.chunks, schedule.segments, granularity);
  execution.input = execution.data = reinterpret_cast<std::uintptr_t>(values.data);
  execution.dtype = values.dtype;
  execution.op = call_.op;
  execution.final_scale = final_scale(call_, group_.size());
  execution.lane = static_cast<std::uint8_t>(sequence_ % kLanes);
  execution.result_pieces = schedule.pieces();
  running_ = std::make_unique<Executor>(across, std::move(execution));
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
