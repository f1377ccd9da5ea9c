// SPDX-License-Identifier: Apache-2.0
// A collective on device memory.
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

/// Made when it is called, before the ranks compare their calls: what is in the caller's stream at this moment comes
/// before it. Then the ranks agree on when it runs; in its turn the group of devices is made, if it is the first one
/// that needs it; the device's thread enqueues it; and it is done when the device has done it. It keeps its turn until
/// the thread has been given all of it.
class DeviceOperation final : public Operation {
 public:
  enum class Way { kVendor, kHierarchical, kSchedule };
  DeviceOperation(const MethodInputs& inputs, Way way);
  ~DeviceOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  /// What has been enqueued may still run: then memory stays as it is.
  BufferHazard withdraw() override;
  std::shared_ptr<DeviceEvent> enqueued() const override;

 private:
  enum class Phase { kAgree, kTurn, kBringUp, kEnqueue, kRun, kDone };
  void begin_agreement();
  std::unique_ptr<DeviceRun> make_run();
  std::unique_ptr<DeviceRun> make_run_of(const Call& call, const DeviceEvents& events);
  State advance_run();
  /// @throws DeviceError  the group has failed while it worked
  void check_group(Clock::time_point now);
  DeviceReach reach() const { return way_ == Way::kHierarchical ? DeviceReach::kHost : DeviceReach::kAll; }

  const Group& group_;
  DeviceSlot& slot_;
  const std::unique_ptr<const KeptCall> divided_sum_;  // in the place of an average of f16; else null
  const Call& call_;
  const Selection& selection_;
  const Way way_;
  const DeviceOrder::Ticket ticket_;
  std::optional<Error> failure_;  // of the constructor; raised in the operation's turn to run
  DeviceEvents events_;
  Phase phase_ = Phase::kAgree;
  std::uint64_t time_ = 0;                // proposed, then agreed
  std::unique_ptr<Operation> agreement_;  // on the time
  std::unique_ptr<DeviceRun> run_;
  Clock::time_point next_check_{};
};

}  // namespace farandole
