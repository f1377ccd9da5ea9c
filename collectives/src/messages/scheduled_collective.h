// SPDX-License-Identifier: Apache-2.0
// A collective by a schedule over messages.
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

/// Runs a plan: its prologue when it is made, then the schedule, then its epilogue.
class ScheduledCollective final : public Operation {
 public:
  /// @param call  need not outlive the constructor; its buffers do. Its root and its ranks are those of `group`.
  /// @param bytes  of the whole vector: what the ranks have selected for; the same on all of them
  ScheduledCollective(const Group& group, const Call& call, std::size_t bytes, const Selection& selection,
                      std::uint64_t sequence);

  State advance() override;
  std::vector<int> waits_for() const override { return executor_->waits_for(); }
  BufferHazard withdraw() override { return executor_->withdraw(); }

 private:
  const ExecutionPlan plan_;
  std::byte* const output_;
  const Scratch staged_, whole_;
  std::unique_ptr<Executor> executor_;  // last: it withdraws its messages before their memory goes
};

/// The input times a factor, where the output is to be. They may be the same.
void copy_scaled(void* output, const ConstBufferView& input, double factor);

}  // namespace farandole
