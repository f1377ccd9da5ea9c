// SPDX-License-Identifier: Apache-2.0
#include "shared_memory/shm_operation.h"

#include <fmt/core.h>

#include <string>

#include "operation/method_inputs.h"

namespace farandole {
namespace {

/// Explains how processes read inputs outside windows. Empty for reductions, which never use cross-memory attach.
std::string explain_single_copies(Collective collective, const Group& group) {
  const std::int64_t min_bytes = group.endpoint->settings().shared_memory.single_copy_bytes;
  if (reduces(collective) || min_bytes == 0) return "";
  if (!group.endpoint->memory().can_copy()) return "; the kernel does not let the processes read each other's memory";
  return fmt::format("; between processes the kernel copies chunks from {} bytes out of other memory", min_bytes);
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
    .sends_no_partial_sums = true,
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape& shape) { return shape.ranks > 1 && shape.hosts == 1; },
    .is_available = [](const SelectionQuery& query, bool) { return query.shares_memory; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<ShmOperation>(inputs.group, *inputs.host, inputs.prepared,
                                            LaneLedger::first_number(inputs.sequence),
                                            ShmOperation::Purpose::kCollective, inputs.has_arrived);
    },
    .explain = explain_shared_memory,
};

ShmOperation::ShmOperation(const Group& group, ShmGroup& shm, const PreparedCall& prepared, std::uint64_t number,
                           Purpose purpose, bool has_arrived)
    : group_(group),
      shm_(shm),
      prepared_(prepared),
      has_arrived_(has_arrived),
      arrival_(group, shm, prepared.descriptor, number),
      // Begin here: operations are constructed, or were announced, in the order of their numbers.
      previous_(shm.ledger().begin(arrival_.lane(), number)) {
  if (purpose == Purpose::kComparison) return;
  if (has_parts(prepared.call.collective)) offsets_ = prepared.parts.offsets();
  if (prepared.bytes <= shm.one_shot_bytes()) {
    one_shot_.emplace(shm, arrival_.lane(), prepared, offsets_);
  } else {
    pipeline_.emplace(group, shm, arrival_, prepared, offsets_);
  }
}

ShmOperation::~ShmOperation() {
  shm_.ledger().end(arrival_.lane(), followed_by_);
}

/// After a fault the caller may free its buffers as soon as no peer accesses them; windows stay mapped, so they need no
/// wait. The wait cannot be in the destructor: an enclosing operation that must be kept until exit never destroys its
/// parts.
BufferHazard ShmOperation::withdraw() {
  if (phase_ != Phase::kDone && shm_.buffers().by_address()) shm_.wait_until_buffers_unused(arrival_.lane());
  return BufferHazard::kNone;
}

Operation::State ShmOperation::advance() {
  switch (phase_) {
    case Phase::kConnect:
      if (!shm_.connect()) return State::kWaiting;
      phase_ = Phase::kAwaitLane;
      [[fallthrough]];
    case Phase::kAwaitLane:
      if (!has_arrived_) {
        if (shm_.ledger().first_behind(previous_) >= 0) return State::kWaiting;
        arrive();
      }
      phase_ = Phase::kArrive;
      [[fallthrough]];
    case Phase::kArrive:
      if (!arrival_.all_arrived()) return State::kWaiting;
      if (group_.compares) {
        if (!arrival_.calls_agree()) {
          arrival_.publish_descriptor();
          phase_ = Phase::kDescribe;
          return State::kMoved;
        }
        if (arrival_.has_counts()) arrival_.compare_counts();
      }
      if (one_shot_) one_shot_->compute_result();
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
  if (one_shot_) one_shot_->publish_input();
  if (pipeline_) {
    const Call& call = prepared_.call;
    const bool is_reachable = arrival_.publish_buffers(call.input, call.output, pipeline_->shares_input());
    if (call.exchanges_counts()) arrival_.publish_counts(prepared_.parts, prepared_.recv_parts);
    if (!is_reachable && reduces(call.collective)) pipeline_->take_first_step();
  }
  arrival_.arrive();
}

std::vector<int> ShmOperation::waits_for() const {
  if (phase_ == Phase::kDone) return {};
  if (phase_ == Phase::kArrive) return arrival_.missing();
  if (phase_ == Phase::kRun) return {group_.member(shm_.member(pipeline_->waits_for()))};
  return shm_.peers_of(group_);
}

}  // namespace farandole
