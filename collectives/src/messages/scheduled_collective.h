// SPDX-License-Identifier: Apache-2.0
// Collectives in host memory that run a schedule over messages, and the executor of schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "messages/execution_plan.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"
#include "selection/method.h"

namespace farandole {

/// Arguments of an Executor: a prepared schedule, and the memory and types that it runs on.
///
/// `input` and `data` are the addresses at which element 0 of the layout would lie. They are integers, not pointers,
/// because there may be no memory at that address: a rank whose buffer holds only chunk c passes the buffer's address
/// minus the offset of chunk c.
struct Execution {
  std::shared_ptr<const PreparedSchedule> prepared;
  Offsets offsets;           ///< boundaries of the schedule's pieces, in elements of the layout
  std::uintptr_t input = 0;  ///< base address of Space::kInput
  std::uintptr_t data = 0;   ///< base address of Space::kData; equal to `input` in an in-place collective
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  double final_scale = 1.0;  ///< factor of the schedule's `finish` steps, which run on fully reduced pieces
  int first_result = 0;      ///< first piece of the result
  int result_pieces = 0;     ///< number of pieces; at the end those that no step writes are copied from the input
  std::uint8_t lane = 0;
  Traffic traffic = Traffic::kShort;
};

/// Runs this rank's schedule over messages, without blocking: an interpreter that follows the dependencies of the
/// steps.
///
/// A step is ready when all steps that it depends on are complete. Local steps (reduce, copy, finish) are then done
/// immediately. Sends and receives are posted to the transport, and tested on every `advance`. Messages of a channel
/// (peer and direction) are posted in program order, which alone matches a send with its receive: channels are first
/// in, first out and carry no tags. Both ends skip a message of no elements.
///
/// If the transport can reduce while it receives, a receive-and-reduce step is a single call (`recv_reduce`). Otherwise
/// the executor receives the message into bounce memory, and reduces it on arrival; a limit per peer bounds that
/// memory.
///
/// On a fault `advance` throws the transport's error. The owner then calls `withdraw`, which withdraws all pending
/// messages and reports whether a transport may still access their memory.
class Executor final : public Operation {
 public:
  Executor(const Group& group, Execution execution);
  ~Executor() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  struct Pending {
    int step;
    Scratch bounce;  ///< memory of an unfused receive-and-reduce; outlives `transfer`
    std::unique_ptr<Transfer> transfer;
  };
  struct AddressRange {
    std::uintptr_t address;
    std::size_t count;
  };
  AddressRange locate(const Region& region) const;
  /// Starts the steps that are ready. Returns true if it started any.
  bool start_ready();
  /// Tests the pending messages. Returns true if any is complete.
  bool test_pending();
  /// Starts a step. Returns false, and does nothing, if the step must wait until bounce memory is free.
  bool start(int step);
  void start_message(int index, const Step& step);
  void run_locally(const Step& step);
  void finish(const Step& step);
  void complete(int step);
  void resolve_dependency(int step);
  /// Copies from the input the pieces of the result that no step has written.
  void copy_untouched() const;

  const Group& group_;
  const Execution execution_;
  const Schedule& schedule_;
  const std::size_t element_bytes_;
  std::vector<Scratch> scratch_;
  std::vector<int> unmet_dependencies_;  // by step: number of dependencies that are not complete
  std::deque<int> ready_;                // steps without unmet dependencies that have not started
  std::vector<Pending> pending_;         // messages in flight, in the order in which they were posted
  // Used by test_pending: channels with an incomplete message, as (peer, is a send).
  std::vector<std::pair<int, bool>> blocked_channels_;
  std::map<int, int> bounces_in_flight_;  // unfused receive-and-reduces in flight, by peer
  std::vector<Scratch> spare_bounces_;    // bounce memory for reuse
  std::size_t incomplete_steps_;          // number of steps that are not complete
};

extern const Method kScheduleMethod;

/// Runs an ExecutionPlan: the prologue in the constructor, the schedule by an Executor, and the epilogue when the
/// schedule is complete.
class ScheduledCollective final : public Operation {
 public:
  /// @param call  its root and counts are by rank of `group`; only its buffers must outlive the operation
  /// @param bytes  size of the whole vector, the same on all ranks; long vectors use Traffic::kLong
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

}  // namespace farandole
