// SPDX-License-Identifier: Apache-2.0
#include "messages/scheduled_collective.h"

#include <algorithm>
#include <cstring>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "operation/method_inputs.h"

namespace farandole {
namespace {

// Maximum size of a vector whose messages may share a connection with other collectives' messages. A message of 64 KiB
// takes 0.5 ms at 1 Gbit/s: an acceptable wait for messages queued behind it.
constexpr std::size_t kMaxShortBytes = 64 << 10;

// Maximum number of unfused receive-and-reduces in flight per peer. The limit cannot cause a deadlock: in a
// first-in-first-out channel a later message never completes before an earlier message, so posting the later message
// late delays nothing.
constexpr int kMaxBouncesPerPeer = 4;

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): see Execution
}

/// Writes `input` times `factor` to `output`, which may be the input's memory.
void copy_scaled(void* output, const ConstBufferView& input, double factor) {
  if (factor != 1.0) {
    scale(output, input.data, input.count, input.dtype, factor);
  } else if (output != input.data && input.count > 0) {
    std::memcpy(output, input.data, input.size_in_bytes());
  }
}

}  // namespace

Executor::Executor(const Group& group, Execution execution)
    : group_(group),
      execution_(std::move(execution)),
      schedule_(execution_.prepared->schedule),
      element_bytes_(size_in_bytes(execution_.dtype)),
      unmet_dependencies_(execution_.prepared->waits),
      incomplete_steps_(schedule_.steps.size()) {
  for (int slot = 0; slot < schedule_.scratch_slots; ++slot) {
    scratch_.emplace_back(execution_.offsets.back() * element_bytes_);
  }
  for (std::size_t i = 0; i < unmet_dependencies_.size(); ++i) {
    if (unmet_dependencies_[i] == 0) ready_.push_back(static_cast<int>(i));
  }
}

Executor::~Executor() = default;

BufferHazard Executor::withdraw() {
  auto worst = BufferHazard::kNone;
  for (Pending& pending : pending_) worst = std::max(worst, give_up(pending.transfer));
  return worst;
}

Executor::AddressRange Executor::locate(const Region& region) const {
  const std::size_t first = execution_.offsets[static_cast<std::size_t>(region.first)];
  const int end_piece = region.first + region.count;
  const std::size_t end = execution_.offsets[static_cast<std::size_t>(end_piece)];
  std::uintptr_t base = execution_.data;
  if (region.space == Space::kInput) base = execution_.input;
  if (region.space == Space::kScratch) {
    base = reinterpret_cast<std::uintptr_t>(scratch_[static_cast<std::size_t>(region.slot)].data());
  }
  return {base + first * element_bytes_, end - first};
}

Operation::State Executor::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = start_ready();
    again = test_pending() || again;
    moved = moved || again;
  }
  if (incomplete_steps_ > 0) return moved ? State::kMoved : State::kWaiting;
  copy_untouched();
  return State::kDone;
}

bool Executor::start_ready() {
  bool moved = false;
  for (std::size_t untried = ready_.size(); untried > 0; --untried) {
    const int step = ready_.front();
    ready_.pop_front();
    if (start(step)) {
      moved = true;
    } else {
      ready_.push_back(step);
    }
  }
  return moved;
}

bool Executor::start(int index) {
  const Step& step = schedule_.steps[static_cast<std::size_t>(index)];
  if (!step.is_message()) {
    run_locally(step);
    complete(index);
    return true;
  }
  const Region& region = step.kind == StepKind::kSend ? step.operand : step.target;
  const bool empty = locate(region).count == 0;
  if (!empty && step.kind == StepKind::kRecvReduce && !group_.route(step.peer).fuses_reduction()) {
    int& bounces = bounces_in_flight_[step.peer];
    if (bounces == kMaxBouncesPerPeer) return false;
    ++bounces;
  }
  if (!empty) start_message(index, step);
  const int next = execution_.prepared->on_start[static_cast<std::size_t>(index)];
  if (next >= 0) resolve_dependency(next);
  if (empty) complete(index);
  return true;
}

void Executor::start_message(int index, const Step& step) {
  Transport& route = group_.route(step.peer);
  Pending pending{index, {}, nullptr};
  if (step.kind == StepKind::kSend) {
    const AddressRange from = locate(step.operand);
    pending.transfer = route.send(group_.channel_to(step.peer, execution_.lane, execution_.traffic),
                                  pointer(from.address), from.count * element_bytes_);
  } else if (step.kind == StepKind::kRecv) {
    const AddressRange to = locate(step.target);
    pending.transfer = route.recv(group_.channel_from(step.peer, execution_.lane, execution_.traffic),
                                  pointer(to.address), to.count * element_bytes_);
  } else if (route.fuses_reduction()) {
    const AddressRange to = locate(step.target);
    pending.transfer =
        route.recv_reduce(group_.channel_from(step.peer, execution_.lane, execution_.traffic), pointer(to.address),
                          pointer(locate(step.operand).address), to.count, execution_.dtype, execution_.op);
  } else {
    const std::size_t bytes = locate(step.target).count * element_bytes_;
    if (!spare_bounces_.empty()) {
      pending.bounce = std::move(spare_bounces_.back());
      spare_bounces_.pop_back();
    }
    if (pending.bounce.size() < bytes) pending.bounce = Scratch(bytes);
    pending.transfer =
        route.recv(group_.channel_from(step.peer, execution_.lane, execution_.traffic), pending.bounce.data(), bytes);
  }
  pending_.push_back(std::move(pending));
}

bool Executor::test_pending() {
  bool moved = false;
  blocked_channels_.clear();
  for (std::size_t i = 0; i < pending_.size();) {
    const Step& step = schedule_.steps[static_cast<std::size_t>(pending_[i].step)];
    // Messages of a channel complete in the order of `pending_`. Once a message of the channel is incomplete, skip the
    // rest: each test may be a system call.
    const std::pair channel(step.peer, step.kind == StepKind::kSend);
    const bool is_blocked =
        std::find(blocked_channels_.begin(), blocked_channels_.end(), channel) != blocked_channels_.end();
    if (is_blocked || !pending_[i].transfer->test()) {
      if (!is_blocked) blocked_channels_.push_back(channel);
      ++i;
      continue;
    }
    Pending done = std::move(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (done.bounce.size() > 0) {
      const AddressRange to = locate(step.target);
      reduce(pointer(to.address), pointer(locate(step.operand).address), done.bounce.data(), to.count, execution_.dtype,
             execution_.op);
      spare_bounces_.push_back(std::move(done.bounce));
      --bounces_in_flight_[step.peer];
    }
    complete(done.step);
    moved = true;
  }
  return moved;
}

void Executor::run_locally(const Step& step) {
  const AddressRange to = locate(step.target);
  if (to.count == 0) return;
  if (step.kind == StepKind::kReduce) {
    reduce(pointer(to.address), pointer(locate(step.operand).address), pointer(locate(step.other).address), to.count,
           execution_.dtype, execution_.op);
  } else if (step.kind == StepKind::kCopy) {
    const AddressRange from = locate(step.operand);
    if (from.address != to.address) std::memmove(pointer(to.address), pointer(from.address), to.count * element_bytes_);
  } else {
    finish(step);
  }
}

void Executor::finish(const Step& step) {
  const AddressRange to = locate(step.target);
  const AddressRange from = locate(step.operand);
  if (execution_.final_scale != 1.0) {
    scale(pointer(to.address), pointer(from.address), to.count, execution_.dtype, execution_.final_scale);
  } else if (from.address != to.address) {
    std::memcpy(pointer(to.address), pointer(from.address), to.count * element_bytes_);
  }
}

void Executor::complete(int step) {
  --incomplete_steps_;
  for (const int next : execution_.prepared->on_complete[static_cast<std::size_t>(step)]) resolve_dependency(next);
}

void Executor::resolve_dependency(int step) {
  if (--unmet_dependencies_[static_cast<std::size_t>(step)] == 0) ready_.push_back(step);
}

void Executor::copy_untouched() const {
  if (execution_.input == execution_.data) return;
  for (int piece = execution_.first_result; piece < execution_.first_result + execution_.result_pieces; ++piece) {
    if (!schedule_.untouched[static_cast<std::size_t>(piece)]) continue;
    const AddressRange from = locate({Space::kInput, 0, piece, 1});
    const AddressRange to = locate({Space::kData, 0, piece, 1});
    if (from.count > 0) std::memmove(pointer(to.address), pointer(from.address), from.count * element_bytes_);
  }
}

std::vector<int> Executor::waits_for() const {
  std::vector<int> ranks;
  for (const Pending& pending : pending_) {
    ranks.push_back(group_.member(schedule_.steps[static_cast<std::size_t>(pending.step)].peer));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

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

}  // namespace farandole
