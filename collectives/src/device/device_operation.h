// SPDX-License-Identifier: Apache-2.0
// A collective on device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_slot.h"
#include "farandole/core/error.h"
#include "operation/call.h"
#include "operation/method_inputs.h"
#include "operation/operation.h"
#include "selection/method.h"

namespace farandole {

extern const Method kDeviceVendorMethod;
extern const Method kDeviceScheduleMethod;

/// What an operation enqueues. Outlives what it has enqueued: its memory is the stream's until then.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  /// On the device's thread. @param devices  null where the rank is alone
  virtual void enqueue(Device& device, DeviceGroup* devices, StreamView stream) = 0;
};

/// Made when it is called, before the ranks compare their calls: what is in the caller's stream at this moment comes
/// before it. Then the ranks agree on when it runs; in its turn the group of devices is made, if it is the first one;
/// the device's thread enqueues all of it in one go; and it is done when the device has done it.
class DeviceOperation final : public Operation {
 public:
  explicit DeviceOperation(const MethodInputs& inputs, bool by_vendor);
  ~DeviceOperation() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  /// What has been enqueued may still run: then memory stays as it is.
  Aftermath withdraw() override;
  std::shared_ptr<DeviceEvent> enqueued() const override;

 private:
  enum class Phase { kAgree, kTurn, kBringUp, kEnqueue, kRun, kDone };
  void begin_agreement();
  void enqueue();
  /// @throws DeviceError  the group has failed while it worked
  void check_group(Clock::time_point now);

  const Group& group_;
  DeviceSlot& slot_;
  const Call& call_;
  const Selection& selection_;
  const bool by_vendor_;
  const DeviceOrder::Ticket ticket_;
  std::optional<Error> failure_;  // of the constructor; raised in the operation's turn to run
  std::shared_ptr<DeviceEvent> ready_, done_;
  Phase phase_ = Phase::kAgree;
  std::uint64_t time_ = 0;                // proposed, then agreed
  std::unique_ptr<Operation> agreement_;  // on the time
  std::shared_ptr<DeviceWork> work_;
  std::shared_ptr<const DeviceJob> enqueuing_;
  Clock::time_point next_check_{};
};

}  // namespace farandole
