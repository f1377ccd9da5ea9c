// SPDX-License-Identifier: Apache-2.0
// Operation of a collective on device memory, from the call to the end of its work on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_slot.h"
#include "device/device_work.h"
#include "farandole/core/error.h"
#include "operation/call.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"
#include "selection/method.h"

namespace farandole {

extern const Method kDeviceVendorMethod;
extern const Method kDeviceHierarchicalMethod;
extern const Method kDeviceScheduleMethod;
/// A message from the root of a communicator of two ranks to the other rank. Not in the list of methods: it runs every
/// call of a communicator that carries messages (Group::carries_messages), and no other call.
extern const Method kDeviceMessageMethod;

/// A collective on device memory in the agreed order. A rank's device operations, over all communicators, run in
/// sequence in a single stream. All ranks run the operations that they share in the same order: otherwise two NCCL
/// collectives could wait for each other forever.
///
/// 1. Constructor, inside the program's call, before the ranks compare their calls: records an event in the caller's
/// stream, so that the operation is ordered after work already enqueued there, and adds the operation to the rank's
/// DeviceOrder.
/// 2. kMeet: waits until all ranks have made the call. If ranks compare calls, all have; otherwise a small allreduce
/// waits for them.
/// 3. kPropose: proposes a time to the DeviceOrder.
/// 4. kAgree: an allreduce (maximum) of 8 bytes in host memory turns the proposals into the agreed time.
/// 5. kTurn: waits until every other pending operation of this rank is certain to come later.
/// 6. kBringUp: the first operation that needs the communicator's device group makes it (DeviceSlot).
/// 7. kEnqueue: the device's thread enqueues the work (DeviceRun). The next operation's turn begins as soon as all jobs
/// for that thread are queued.
/// 8. kRun: polls the event at the end of the work, and checks the device group for errors every millisecond.
class DeviceOperation final : public Operation {
 public:
  enum class Way { kVendor, kHierarchical, kSchedule, kMessage };
  DeviceOperation(const MethodInputs& inputs, Way way);
  ~DeviceOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  /// If the device may still execute work of this operation, abandons the device and returns kWritten.
  BufferHazard withdraw() override;
  /// The event at the end of the work, once all work is enqueued; else null.
  std::shared_ptr<DeviceEvent> enqueued() const override;

 private:
  enum class Phase { kMeet, kPropose, kAgree, kTurn, kBringUp, kEnqueue, kRun, kDone };
  State advance_agreement();
  void begin_agreement();
  std::unique_ptr<DeviceRun> make_run();
  std::unique_ptr<DeviceRun> make_run_of(const Call& call, const DeviceEvents& events);
  State advance_run();
  /// @throws DeviceError  the device group reports an asynchronous error
  void check_group(Clock::time_point now);
  DeviceReach reach() const { return way_ == Way::kHierarchical ? DeviceReach::kHost : DeviceReach::kAll; }

  const Group& group_;
  DeviceSlot& slot_;
  const std::unique_ptr<const KeptCall>
      divided_sum_;  // replaces an average of f16 by schedule, see AverageWay; else null
  const Call& call_;
  const Selection& selection_;
  const Way way_;
  const DeviceOrder::Ticket ticket_;
  std::shared_ptr<BlockUser> use_ = std::make_shared<BlockUser>();  // exists while the operation may use its buffers
  std::optional<Error> failure_;  // error of the constructor; thrown by the first `advance`
  DeviceEvents events_;
  Phase phase_ = Phase::kMeet;
  std::uint64_t time_ = 0;                // the proposed time, then the agreed time
  std::unique_ptr<Operation> agreement_;  // the allreduce of kMeet or kAgree
  std::unique_ptr<DeviceRun> run_;
  Clock::time_point next_check_{};  // when to check the device group for errors again
};

}  // namespace farandole
