// SPDX-License-Identifier: Apache-2.0
// Averages of integers on device memory: sums in a wider type.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device_context.h"
#include "device/device_work.h"
#include "operation/average.h"
#include "operation/call.h"

namespace farandole {

/// Widens the input on the device, runs the sum, and divides and narrows its result.
class DeviceAverageRun final : public DeviceRun {
 public:
  using MakeRun = std::function<std::unique_ptr<DeviceRun>(const Call& call, const DeviceEvents& events)>;
  /// @param call  needs AverageWay::kWideSum; outlives the run   @param make  makes the run of the sum
  /// @throws DeviceError  there is no memory; nothing has been enqueued
  DeviceAverageRun(DeviceContext& context, const Call& call, const DeviceEvents& events, MakeRun make);

  State advance() override;
  bool has_given_all() const override { return narrowing_ != nullptr; }
  std::vector<int> waits_for() const override { return sum_ ? sum_->waits_for() : std::vector<int>{}; }
  Aftermath withdraw() override;

 private:
  std::vector<DeviceTask> widening_tasks() const;
  std::vector<DeviceTask> narrowing_tasks() const;

  DeviceContext& context_;
  const Call& call_;
  const DeviceEvents events_;
  const MakeRun make_;
  const DeviceScratch scaled_, input_, output_;
  const KeptCall sum_call_;
  const DeviceEvents sum_events_;
  std::shared_ptr<const DeviceJob> widening_, narrowing_;
  std::unique_ptr<DeviceRun> sum_;
};

}  // namespace farandole
