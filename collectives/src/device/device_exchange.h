// SPDX-License-Identifier: Apache-2.0
// A schedule on device memory whose messages a transport of the host takes, where it takes device memory as it is.
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

/// Stage by stage: the device's thread enqueues what kernels do, and once the device has done it the host sends and
/// receives the messages of the round. No kernel waits for a message, and nothing is left in the stream when it is
/// done.
class DeviceExchange final : public Operation {
 public:
  /// @param group  of the ranks that meet, whose routes can send device memory; outlives the exchange, as the call's
  /// buffers do   @param stream  of the kernels
  DeviceExchange(DeviceContext& context, StreamView stream, const Group& group, const Call& call,
                 const Selection& selection, std::uint64_t sequence);
  State advance() override;
  std::vector<int> waits_for() const override;
  /// The device may still use its memory, which must be kept.
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
  /// Made by the device's thread.
  const std::shared_ptr<std::unique_ptr<DeviceScratch>> memory_;
  std::shared_ptr<const DeviceJob> preparing_;
  DevicePlan plan_;                              // once there is memory
  const std::shared_ptr<DeviceEvent> computed_;  // recorded behind the kernels of a stage
  std::shared_ptr<const DeviceJob> enqueuing_;
  std::size_t stage_ = 0;
  Phase phase_ = Phase::kPrepare;
  std::vector<Pending> pending_;
};

}  // namespace farandole
