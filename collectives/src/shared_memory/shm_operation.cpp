// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_operation.h"

#include <fmt/core.h>

#include <string>

#include "operation/method_inputs.h"

namespace farandole {
namespace {

bool has_counts(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kGather ||
         collective == Collective::kReduceScatter || collective == Collective::kScatter ||
         collective == Collective::kAlltoall;
}

/// How processes read what is in no window.
std::string explain_single_copies(Collective collective, const Group& group) {
  const std::int64_t least = group.endpoint->settings().shared_memory.single_copy_bytes;
  if (reduces(collective) || least == 0) return "";
  if (!group.endpoint->memory().can_copy()) return "; the kernel does not let the processes read each other's memory";
  return fmt::format("; between processes the kernel copies chunks from {} bytes out of other memory", least);
}

std::string explain_shared_memory(Collective collective, std::size_t bytes, const Group& group) {
  return fmt::format("the ranks live on one host and share memory: {}",
                     bytes <= group.one_shot_bytes
                         ? "one shot, every rank reads what it needs of all others"
                         : fmt::format("two shots, in parts of {} bytes; windows are read and written in place{}",
                                       group.slice_bytes, explain_single_copies(collective, group)));
}

}  // namespace

constinit const Method kShmMethod{
    .name = "shared_memory",
    .number = 0xfd,
    .needs = "several ranks, all on one host, and FARANDOLE_SHARED_MEMORY on",
    .is_preferred = true,
    .compares_calls = true,
    .sums_where_it_reads = true,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape& shape) { return shape.ranks > 1 && shape.hosts == 1; },
    .is_available = [](const SelectionQuery& query, bool) { return query.shares_memory; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<ShmOperation>(inputs.group, *inputs.host, inputs.call, inputs.descriptor,
                                            ShmGroup::first_number(inputs.sequence), ShmOperation::Purpose::kCollective,
                                            inputs.has_arrived);
    },
    .explain = explain_shared_memory,
};

ShmOperation::ShmOperation(const Group& group, ShmGroup& host, const Call& call, const Descriptor& descriptor,
                           std::uint64_t number, Purpose purpose, bool has_arrived)
    : group_(group),
      host_(host),
      has_arrived_(has_arrived),
      arrival_(group, host, descriptor, number),
      // Here, because operations are made in the order of their numbers, or were announced in it.
      previous_(host.begin(arrival_.lane(), number)) {
  if (purpose == Purpose::kComparison) return;
  if (has_counts(call.collective)) firsts_ = parts_of(call, host.size()).offsets();
  const std::size_t bytes = total_count(call, host.size()) * size_in_bytes(call.input.dtype);
  if (bytes <= host.one_shot_bytes() && !call.exchanges_counts()) {
    one_shot_.emplace(host, arrival_.lane(), call, firsts_);
  } else {
    pipeline_.emplace(group, host, arrival_, call, firsts_);
  }
}

ShmOperation::~ShmOperation() {
  host_.end(arrival_.lane(), followed_by_);
}

/// Given up after a fault, the caller's buffers may go as soon as no rank touches them. A part of an operation that is
/// kept is not destroyed.
BufferHazard ShmOperation::withdraw() {
  if (phase_ != Phase::kDone && host_.by_address()) host_.wait_until_buffers_unused(arrival_.lane());
  return BufferHazard::kNone;
}

Operation::State ShmOperation::advance() {
  switch (phase_) {
    case Phase::kConnect:
      if (!host_.connect()) return State::kWaiting;
      phase_ = Phase::kAwaitLane;
      [[fallthrough]];
    case Phase::kAwaitLane:
      if (!has_arrived_) {
        if (host_.first_behind(previous_) >= 0) return State::kWaiting;
        arrive();
      }
      phase_ = Phase::kArrive;
      [[fallthrough]];
    case Phase::kArrive:
      if (!arrival_.all_arrived()) return State::kWaiting;
      if (group_.compares) {
        if (!arrival_.is_alike()) {
          arrival_.describe();
          phase_ = Phase::kDescribe;
          return State::kMoved;
        }
        if (arrival_.has_counts()) arrival_.compare_counts();
      }
      if (one_shot_) one_shot_->take();
      if (!pipeline_) break;
      pipeline_->begin();
      phase_ = Phase::kRun;
      [[fallthrough]];
    case Phase::kRun:
      if (const State state = pipeline_->advance(); state != State::kDone) return state;
      break;
    case Phase::kDescribe:
      if (!arrival_.all_described()) return State::kWaiting;
      arrival_.throw_difference();
    case Phase::kDone:
      break;
  }
  phase_ = Phase::kDone;
  return State::kDone;
}

void ShmOperation::arrive() {
  if (one_shot_) one_shot_->show();
  if (pipeline_) pipeline_->show();
  arrival_.arrive();
}

std::vector<int> ShmOperation::waits_for() const {
  if (phase_ == Phase::kDone) return {};
  if (phase_ == Phase::kArrive) return arrival_.missing();
  if (phase_ == Phase::kRun) return {group_.member(host_.member(pipeline_->waits_for()))};
  return host_.peers_of(group_);
}

}  // namespace farandole
