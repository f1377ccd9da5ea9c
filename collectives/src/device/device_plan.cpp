// SPDX-License-Identifier: Apache-2.0
#include "device/device_plan.h"

#include <algorithm>
#include <array>
#include <utility>

namespace farandole {
namespace {

using Memory = ExecutionPlan::Memory;

/// Elements in device memory. The address is an integer, because the vector's start may lie before the allocated memory
/// (see layout()).
struct DeviceExtent {
  std::uintptr_t address = 0;
  std::size_t count = 0;
  void* pointer() const { return reinterpret_cast<void*>(address); }  // NOLINT(performance-no-int-to-ptr): see above
};

/// Offsets of the parts of an operation's own memory: scratch slots, bounce memory, staged input, whole vector.
class OwnMemory {
 public:
  OwnMemory(const ExecutionPlan& plan, std::size_t element_bytes) : plan_(plan), element_bytes_(element_bytes) {
    const Schedule& schedule = plan.prepared->schedule;
    slot_bytes_ = device_aligned(plan.offsets.back() * element_bytes);
    bounce_ = slot_bytes_ * static_cast<std::size_t>(schedule.scratch_slots);
    staged_ = bounce_ + max_bounced_bytes();
    full_vector_ = staged_ + device_aligned(plan.staged_bytes);
  }
  std::size_t slot(int number) const { return slot_bytes_ * static_cast<std::size_t>(number); }
  std::size_t bounce() const { return bounce_; }
  std::size_t staged() const { return staged_; }
  std::size_t full_vector() const { return full_vector_; }
  std::size_t bytes() const { return full_vector_ + device_aligned(plan_.full_vector_bytes); }
  std::size_t count_of(const Region& region) const {
    const auto first = static_cast<std::size_t>(region.first);
    return plan_.offsets[first + static_cast<std::size_t>(region.count)] - plan_.offsets[first];
  }

 private:
  /// Maximum over all stages of the bytes that are received into bounce memory.
  std::size_t max_bounced_bytes() const {
    const Schedule& schedule = plan_.prepared->schedule;
    const StreamProgram& program = plan_.prepared->stream_program();
    std::size_t max_bytes = 0;
    for (const StreamProgram::Stage& stage : program.stages) {
      std::size_t bytes = 0;
      for (const int index : stage.messages) {
        if (!program.is_bounced[static_cast<std::size_t>(index)]) continue;
        bytes += device_aligned(count_of(schedule.steps[static_cast<std::size_t>(index)].target) * element_bytes_);
      }
      max_bytes = std::max(max_bytes, bytes);
    }
    return max_bytes;
  }

  const ExecutionPlan& plan_;
  const std::size_t element_bytes_;
  std::size_t slot_bytes_ = 0, bounce_ = 0, staged_ = 0, full_vector_ = 0;
};

class DevicePlanner {
 public:
  DevicePlanner(const ExecutionPlan& plan, const Call& call, void* memory)
      : plan_(plan),
        call_(call),
        program_(plan.prepared->stream_program()),
        schedule_(plan.prepared->schedule),
        element_bytes_(size_in_bytes(call.input.dtype)),
        own_(plan, element_bytes_),
        memory_(reinterpret_cast<std::uintptr_t>(memory)),
        factor_(call.final_scale),
        bounced_(schedule_.steps.size(), 0) {}

  DevicePlan make() {
    if (plan_.has_prologue) add_prologue();
    for (const StreamProgram::Stage& stage : program_.stages) add_stage(stage);
    add_epilogue();
    return std::move(made_);
  }

 private:
  std::uintptr_t base(Memory which) const {
    const std::array<std::uintptr_t, 4> bases{reinterpret_cast<std::uintptr_t>(call_.input.data),
                                              reinterpret_cast<std::uintptr_t>(call_.output.data),
                                              memory_ + own_.staged(), memory_ + own_.full_vector()};
    return bases[static_cast<std::size_t>(which)];
  }
  /// Address at which the full vector would begin if `location` were a part of it; may lie before the memory.
  std::uintptr_t layout(const ExecutionPlan::Location& location) const {
    return base(location.memory) - location.first_byte;
  }
  DeviceExtent locate(const Region& region) const {
    std::uintptr_t begin = layout(region.space == Space::kInput ? plan_.input : plan_.data);
    if (region.space == Space::kScratch) begin = memory_ + own_.slot(region.slot);
    return {begin + plan_.offsets[static_cast<std::size_t>(region.first)] * element_bytes_, own_.count_of(region)};
  }

  DeviceTask scaled(const DeviceExtent& to, const DeviceExtent& from, double factor = 1.0) const {
    return DeviceTask::scale(call_.input.dtype, to.pointer(), from.pointer(), to.count, factor);
  }
  DeviceTask reduced(const DeviceExtent& to, const DeviceExtent& left, const DeviceExtent& right) const {
    DeviceTask task = scaled(to, left);
    task.kind = DeviceTask::Kind::kReduce;
    task.right = right.pointer();
    task.op = call_.op;
    return task;
  }

  void add_prologue() {
    made_.stages.emplace_back();
    const DeviceExtent from{reinterpret_cast<std::uintptr_t>(call_.input.data), call_.input.count};
    if (from.count == 0) return;
    made_.stages.back().launches.push_back({scaled({base(plan_.prologue_target), from.count}, from, call_.prescale)});
  }

  void add_stage(const StreamProgram::Stage& stage) {
    DevicePlan::Stage made;
    for (const StreamProgram::Batch& batch : stage.batches) {
      std::vector<DeviceTask> launch;
      for (const int index : batch) add_task(index, launch);
      if (!launch.empty()) made.launches.push_back(std::move(launch));
    }
    std::uintptr_t bounce = memory_ + own_.bounce();
    for (const int index : stage.messages) add_message(index, bounce, made.messages);
    made_.stages.push_back(std::move(made));
  }

  void add_task(int index, std::vector<DeviceTask>& launch) const {
    const Step& step = schedule_.steps[static_cast<std::size_t>(index)];
    const DeviceExtent to = locate(step.target);
    if (to.count == 0) return;
    const DeviceExtent bounce{bounced_[static_cast<std::size_t>(index)], to.count};
    switch (step.kind) {
      case StepKind::kRecvReduce:
        launch.push_back(reduced(to, locate(step.operand), bounce));
        break;
      case StepKind::kRecv:
        launch.push_back(scaled(to, bounce));
        break;
      case StepKind::kReduce:
        launch.push_back(reduced(to, locate(step.operand), locate(step.other)));
        break;
      default: {
        const DeviceExtent from = locate(step.operand);
        const double factor = step.kind == StepKind::kFinish ? factor_ : 1.0;
        if (factor != 1.0 || from.address != to.address) launch.push_back(scaled(to, from, factor));
      }
    }
  }

  void add_message(int index, std::uintptr_t& bounce, std::vector<DeviceMessage>& messages) {
    const Step& step = schedule_.steps[static_cast<std::size_t>(index)];
    const bool sends = step.kind == StepKind::kSend;
    DeviceExtent extent = locate(sends ? step.operand : step.target);
    if (extent.count == 0) return;  // sender and receiver both skip empty messages
    if (program_.is_bounced[static_cast<std::size_t>(index)]) {
      extent.address = bounced_[static_cast<std::size_t>(index)] = bounce;
      bounce += device_aligned(extent.count * element_bytes_);
    }
    messages.push_back({sends ? DeviceMessage::Kind::kSend : DeviceMessage::Kind::kReceive, step.peer, extent.pointer(),
                        extent.count * element_bytes_});
  }

  /// Copies from the input to `data` the pieces of the result that no step writes. Then, if the result is in
  /// Memory::kFullVector, copies it to the output.
  void add_epilogue() {
    std::vector<DeviceTask> untouched;
    if (layout(plan_.input) != layout(plan_.data)) {
      for (int piece = plan_.first_result; piece < plan_.first_result + plan_.result_pieces; ++piece) {
        if (!schedule_.untouched[static_cast<std::size_t>(piece)]) continue;
        const DeviceExtent from = locate({Space::kInput, 0, piece, 1});
        if (from.count > 0) untouched.push_back(scaled(locate({Space::kData, 0, piece, 1}), from));
      }
    }
    DevicePlan::Stage last;
    if (!untouched.empty()) last.launches.push_back(std::move(untouched));
    if (plan_.delivered_bytes > 0) {
      const std::size_t count = plan_.delivered_bytes / element_bytes_;
      last.launches.push_back(
          {scaled({base(Memory::kOutput), count}, {base(Memory::kFullVector) + plan_.result_byte, count})});
    }
    if (!last.launches.empty()) made_.stages.push_back(std::move(last));
  }

  const ExecutionPlan& plan_;
  const Call& call_;
  const StreamProgram& program_;
  const Schedule& schedule_;
  const std::size_t element_bytes_;
  const OwnMemory own_;
  const std::uintptr_t memory_;
  const double factor_;
  std::vector<std::uintptr_t> bounced_;  // by step: the bounce memory of a receive
  DevicePlan made_;
};

}  // namespace

std::size_t device_memory_needed(const ExecutionPlan& plan, DType dtype) {
  return OwnMemory(plan, size_in_bytes(dtype)).bytes();
}

DevicePlan make_device_plan(const ExecutionPlan& plan, const Call& call, void* memory) {
  return DevicePlanner(plan, call, memory).make();
}

}  // namespace farandole
