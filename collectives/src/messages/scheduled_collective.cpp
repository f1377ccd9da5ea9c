// SPDX-License-Identifier: Apache-2.0
#include "messages/scheduled_collective.h"

#include <cstring>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "operation/method_inputs.h"

namespace farandole {
namespace {

// Maximum size of a vector whose messages may share a connection with those of other collectives. A message of 64 KiB
// takes 0.5 ms at 1 Gbit/s: an acceptable wait for messages queued behind it.
constexpr std::size_t kMaxShortBytes = 64 << 10;

}  // namespace

constinit const Method kScheduleMethod{
    .name = {},
    .number = 0,
    .needs = {},
    .supports = [](Collective) { return true; },
    .fits = [](const TuningShape&) { return true; },
    .is_available = [](const SelectionQuery&, bool) { return true; },
    .make = [](const MethodInputs& inputs) -> std::unique_ptr<Operation> {
      return std::make_unique<ScheduledCollective>(inputs.group, inputs.prepared.call, inputs.prepared.bytes,
                                                   inputs.prepared.selection, inputs.sequence);
    },
};

ScheduledCollective::ScheduledCollective(const Group& group, const Call& call, std::size_t bytes,
                                         const Selection& selection, std::uint64_t sequence)
    : plan_(plan_execution(call, selection, group.rank, group.size())),
      output_(static_cast<std::byte*>(call.output.data)),
      staged_(plan_.staged_bytes),
      full_vector_(plan_.full_vector_bytes) {
  if (!plan_.space.is_host()) throw InternalError("a collective over messages got " + describe(plan_.space));
  const auto memory = [&](ExecutionPlan::Memory which) -> const void* {
    switch (which) {
      case ExecutionPlan::Memory::kInput:
        return call.input.data;
      case ExecutionPlan::Memory::kOutput:
        return output_;
      case ExecutionPlan::Memory::kStaged:
        return staged_.data();
      case ExecutionPlan::Memory::kFullVector:
        break;
    }
    return full_vector_.data();
  };
  const auto address = [&](const ExecutionPlan::Location& location) {
    return reinterpret_cast<std::uintptr_t>(memory(location.memory)) - location.first_byte;
  };
  if (plan_.has_prologue) {
    const bool is_staged = plan_.prologue_target == ExecutionPlan::Memory::kStaged;
    copy_scaled(is_staged ? staged_.data() : output_, call.input, call.prescale);
  }
  Execution execution;
  execution.prepared = plan_.prepared;
  execution.offsets = plan_.offsets;
  execution.input = address(plan_.input);
  execution.data = address(plan_.data);
  execution.dtype = call.input.dtype;
  execution.op = call.op;
  execution.final_scale = call.final_scale;
  execution.first_result = plan_.first_result;
  execution.result_pieces = plan_.result_pieces;
  execution.traffic = bytes > kMaxShortBytes ? Traffic::kLong : Traffic::kShort;
  execution.lane = static_cast<std::uint8_t>(sequence % kLanes);
  executor_ = std::make_unique<Executor>(group, std::move(execution));
}

Operation::State ScheduledCollective::advance() {
  const State state = executor_->advance();
  if (state == State::kDone && plan_.delivered_bytes > 0) {
    std::memcpy(output_, full_vector_.data() + plan_.result_byte, plan_.delivered_bytes);
  }
  return state;
}

void copy_scaled(void* output, const ConstBufferView& input, double factor) {
  if (factor != 1.0) {
    scale(output, input.data, input.count, input.dtype, factor);
  } else if (output != input.data && input.count > 0) {
    std::memcpy(output, input.data, input.size_in_bytes());
  }
}

}  // namespace farandole
