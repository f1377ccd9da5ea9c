// SPDX-License-Identifier: Apache-2.0
// Schedules on device memory over a transport between hosts that accepts device memory (CUDA-aware MPI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device_plan.h"
#include "device/device_scratch.h"
#include "device/device_work.h"
#include "operation/operation.h"

namespace farandole {

/// Runs a DevicePlan whose messages the CPU posts. For each stage of the plan:
///
/// 1. The device's thread enqueues the kernels, and an event after them.
/// 2. When the event is complete, `advance` posts the stage's sends and receives on device memory.
/// 3. When all messages are complete, the next stage begins.
///
/// So no kernel waits for a message, and the stream is idle when the exchange is done.
class DeviceExchange final : public Operation {
 public:
  /// @param group  the ranks of the exchange, between which transports can send device memory; the group and the
  /// buffers of `call` outlive the exchange
  /// @param stream  stream of the kernels
  DeviceExchange(DeviceContext& context, StreamView stream, const Group& group, const Call& call,
                 const Selection& selection, std::uint64_t sequence);
  State advance() override;
  std::vector<int> waits_for() const override;
  /// Always kWritten: the device may still use the memory.
  BufferHazard withdraw() override;

 private:
  enum class Phase { kPrepare, kBegin, kKernels, kMessages };
  struct Pending {
    int peer = 0;
    std::unique_ptr<Transfer> transfer;
  };
  const DevicePlan::Stage& stage() const { return plan_.stages[stage_]; }
  void begin_kernels();
  bool are_kernels_done();
  void begin_messages();
  bool are_messages_done();

  DeviceContext& context_;
  const StreamView stream_;
  const Group& group_;
  const std::uint8_t lane_;
  const Call call_;
  const ExecutionPlan execution_;
  const std::shared_ptr<DeviceScratch> memory_;  // set by the device's thread in `preparing_`
  std::shared_ptr<const DeviceJob> preparing_;
  DevicePlan plan_;                              // set when `preparing_` is done
  const std::shared_ptr<DeviceEvent> computed_;  // recorded after the kernels of each stage
  std::shared_ptr<const DeviceJob> enqueuing_;   // enqueues the kernels of the stage; null if the stage has none
  std::size_t stage_ = 0;
  Phase phase_ = Phase::kPrepare;
  std::vector<Pending> pending_;
};

}  // namespace farandole
