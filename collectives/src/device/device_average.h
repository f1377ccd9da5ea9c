// SPDX-License-Identifier: Apache-2.0
// Averages of integers in device memory, computed as sums in a wider type.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_context.h"
#include "device/device_scratch.h"
#include "device/device_work.h"
#include "operation/average.h"
#include "operation/call.h"

namespace farandole {

/// Averages integers without overflow. On the device, casts the input to a wider type (sum_type), runs the collective
/// as a sum of that type, divides the sums, and casts them back to the output's type.
class DeviceAverageRun final : public DeviceRun {
 public:
  using MakeRun = std::function<std::unique_ptr<DeviceRun>(const Call& call, const DeviceEvents& events)>;
  /// @param call  an average that needs AverageWay::kWideSum; outlives the run   @param make  makes the run of the sum
  DeviceAverageRun(DeviceContext& context, const Call& call, const DeviceEvents& events, MakeRun make);

  State advance() override;
  bool fully_enqueued() const override { return narrowing_ != nullptr; }
  std::vector<int> waits_for() const override { return sum_ ? sum_->waits_for() : std::vector<int>{}; }
  BufferHazard withdraw() override;

 private:
  /// Device memory for the wide input and the sums. Allocated on the device's thread.
  struct Memory {
    Memory(Device& device, const Call& call);
    /// Memory of the sums. An allreduce sums in-place, in the memory of the wide input.
    void* sums() const { return output != nullptr ? output.get() : input.get(); }
    const DeviceScratch scaled, input, output;
  };
  static void widen(Device& device, const Call& call, const Memory& memory, StreamView stream);
  std::vector<DeviceTask> narrowing_tasks() const;

  DeviceContext& context_;
  const Call& call_;
  const DeviceEvents events_;
  const MakeRun make_;
  const DeviceEvents sum_events_;
  const std::shared_ptr<std::unique_ptr<const Memory>> memory_;  // set by the device's thread in `widening_`
  std::shared_ptr<const DeviceJob> widening_, narrowing_;
  std::optional<KeptCall> sum_call_;  // set once `widening_` is done
  std::unique_ptr<DeviceRun> sum_;
};

}  // namespace farandole
