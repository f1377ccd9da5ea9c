// SPDX-License-Identifier: Apache-2.0
// Collectives that run a schedule over messages, in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/execution_plan.h"
#include "messages/executor.h"
#include "operation/operation.h"
#include "selection/method.h"

namespace farandole {

extern const Method kScheduleMethod;

/// Runs an ExecutionPlan: the prologue in the constructor, the schedule by an Executor, and the epilogue when the
/// schedule is complete.
class ScheduledCollective final : public Operation {
 public:
  /// @param call  its root and counts are by rank of `group`; not used after construction, but its buffers are
  /// @param bytes  size of the whole vector, the same on all ranks; decides whether the messages are long traffic
  ScheduledCollective(const Group& group, const Call& call, std::size_t bytes, const Selection& selection,
                      std::uint64_t sequence);

  State advance() override;
  std::vector<int> waits_for() const override { return executor_->waits_for(); }
  BufferHazard withdraw() override { return executor_->withdraw(); }

 private:
  const ExecutionPlan plan_;
  std::byte* const output_;
  const Scratch staged_, full_vector_;
  std::unique_ptr<Executor> executor_;  // declared last: destroyed, with its messages, before their memory is freed
};

/// Writes `input` times `factor` to `output`, which may be the input's memory.
void copy_scaled(void* output, const ConstBufferView& input, double factor);

}  // namespace farandole
