// SPDX-License-Identifier: Apache-2.0
// What a communicator has of its rank's device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_context.h"
#include "messages/hierarchy.h"
#include "operation/group.h"
#include "operation/operation.h"

namespace farandole {

/// Which ranks of a communicator a group of devices has.
enum class DeviceReach : std::uint8_t {
  kAll,
  kHost,  ///< those of this host
};

/// A device group of a communicator is made by the first device operation that needs it, when its turn has come:
/// all ranks tell each other which device and which libraries they have, the first rank of each group an id, and then
/// join. Where all ranks of a group have one already, of another communicator, they use that: a vendor's takes memory
/// of the device, and long to make. A rank that can not take part says so there, and all ranks raise the same. One
/// thread at a time (the work queue's lock).
class DeviceSlot {
 public:
  explicit DeviceSlot(const Group& group);
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

  const Group& group() const { return group_; }
  /// Opens the rank's device, if it is not open. @throws InvalidArgument  there is none
  DeviceContext& context();
  /// Of several hosts; else null.
  const Hierarchy* hierarchy() const { return hierarchy_ ? &*hierarchy_ : nullptr; }
  /// Null where the rank is alone.
  DeviceGroup* devices(DeviceReach reach) const { return level(reach).devices.get(); }
  /// Ranks of the job that are in that group.
  std::vector<int> members(DeviceReach reach) const;
  /// True if all ranks say that messages between hosts take device memory as it is. Known once kHost is up.
  bool sends_device_memory() const { return sends_device_memory_; }
  /// Moves on until the group is there; never blocks. @param sequence, made  of the operation in whose turn it is
  /// @returns  false: to be called again   @throws Unsupported, DeviceError  on all ranks alike
  bool bring_up(DeviceReach reach, std::uint64_t sequence, DeviceOrder::Time made);
  /// Ranks that `bring_up` waits for.
  std::vector<int> waits_for() const;
  /// Gives `bring_up` up, see Operation.
  BufferHazard withdraw();
  /// The communicator ends.
  void close();

 private:
  /// What a rank says of itself. Compared bytewise where it must be the same.
  struct Claim {
    DeviceGroupId id{};  ///< of the first rank of a group
    std::array<char, 64> identity{};
    std::array<char, 128> version{};     ///< of driver and collectives
    std::array<char, 64> collectives{};  ///< version
    std::array<char, 512> problem{};     ///< why this rank can not take part
    std::int32_t host = 0, ordinal = 0;
    std::uint64_t sends_device_memory = 0;
    DeviceOrder::Time made = 0;  ///< of the group that this rank has of its ranks already; 0: none
  };
  struct Level {
    std::shared_ptr<DeviceGroup> devices;
    bool is_up = false;
  };
  class Exchange;
  Level& level(DeviceReach reach) { return levels_[static_cast<std::size_t>(reach)]; }
  const Level& level(DeviceReach reach) const { return levels_[static_cast<std::size_t>(reach)]; }
  /// The ranks of the communicator that are in `rank`'s group.
  std::vector<int> ranks_with(int rank, DeviceReach reach) const;
  /// On the device's thread: a vendor's library may be loaded there, and opens sockets.
  void begin_claiming(DeviceReach reach);
  void check(const std::vector<Claim>& claims, DeviceReach reach) const;
  /// Of a driver that differs, which is no fault, once for this process.
  void warn_of_versions(const std::vector<Claim>& claims) const;
  /// True if all ranks of `rank`'s group have the same one.
  bool have_group(const std::vector<Claim>& claims, int rank, DeviceReach reach) const;
  /// True if each group is there, or can be made. All ranks of the communicator find the same.
  bool are_decided(const std::vector<Claim>& claims, DeviceReach reach) const;
  void begin_joining(const std::vector<Claim>& claims, DeviceReach reach);

  const Group& group_;
  const std::optional<Hierarchy> hierarchy_;
  std::optional<DeviceContext::ContextRef> context_ref_;
  DeviceContext* context_ = nullptr;  // once it is open
  std::array<Level, 2> levels_;
  bool sends_device_memory_ = false;
  bool may_share_ = true;  // false: some ranks of a group have one, and others have none
  // Of the group that is being made.
  DeviceContext::Group known_;  // that this rank has of its ranks already
  // Of the device's thread, which may be left behind in it.
  std::shared_ptr<Claim> claim_;
  std::shared_ptr<const DeviceJob> claiming_;
  std::unique_ptr<Exchange> exchange_;  // of claims
  std::shared_ptr<std::unique_ptr<DeviceGroup>> joined_;
  std::shared_ptr<const DeviceJob> joining_;
};

}  // namespace farandole
