// SPDX-License-Identifier: Apache-2.0
// What a communicator has of its rank's device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_context.h"
#include "operation/group.h"
#include "operation/operation.h"

namespace farandole {

/// The device group of a communicator is made by its first device operation, when that operation's turn has come: all
/// ranks tell each other which device and which libraries they have, rank 0 an id, and then join. A rank that can not
/// take part says so there, and all ranks raise the same. One thread at a time (the work queue's lock).
class DeviceSlot {
 public:
  explicit DeviceSlot(const Group& group);
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

  /// Opens the rank's device, if it is not open. @throws InvalidArgument  there is none
  DeviceContext& context();
  /// True if a device operation of this communicator can run without `bring_up`.
  bool is_up() const { return devices_ != nullptr || group_.size() == 1; }
  /// Null where the rank is alone.
  DeviceGroup* devices() const { return devices_.get(); }
  /// Moves on until the group is there; never blocks. @param sequence, made  of the operation in whose turn it is
  /// @returns  false: to be called again   @throws Unsupported, DeviceError  on all ranks alike
  bool bring_up(std::uint64_t sequence, DeviceOrder::Time made);
  /// Ranks that `bring_up` waits for.
  std::vector<int> waits_for() const;
  /// Gives `bring_up` up, see Operation.
  Aftermath withdraw();
  /// The communicator ends.
  void close();

 private:
  /// What a rank says of itself. Compared bytewise where it must be the same.
  struct Claim {
    DeviceGroupId id{};  ///< of rank 0
    std::array<char, 64> identity{};
    std::array<char, 128> version{};
    std::array<char, 512> problem{};  ///< why this rank can not take part
    std::int32_t host = 0, ordinal = 0;
  };
  class Exchange;
  Claim make_claim();
  void check(const std::vector<Claim>& claims) const;
  void begin_joining(const DeviceGroupId& id);

  const Group& group_;
  std::shared_ptr<DeviceContext> context_;
  std::shared_ptr<DeviceGroup> devices_;
  std::unique_ptr<Exchange> exchange_;  // of claims
  /// Of the device's thread, which may be left behind in it.
  std::shared_ptr<std::unique_ptr<DeviceGroup>> joined_;
  std::shared_ptr<const DeviceJob> joining_;
};

}  // namespace farandole
