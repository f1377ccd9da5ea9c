// SPDX-License-Identifier: Apache-2.0
// A communicator's device groups, made on first use.
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

/// The ranks of a device group.
enum class DeviceReach : std::uint8_t {
  kAll,   ///< all ranks of the communicator
  kHost,  ///< the ranks of the communicator on this host
};

/// A communicator's device groups: one of all its ranks, and one per host. The first device operation that needs a
/// group calls `bring_up` in its turn, which makes the group:
///
/// 1. On the device's thread each rank fills a Claim: its device, versions of libraries, and any problem. The first
/// rank of each group adds a new group id.
/// 2. An allgather by messages gives every rank all claims. All ranks check the same claims, so all join, or all throw
/// the same error.
/// 3. The ranks of each group join with the id of their first rank.
///
/// An NCCL communicator takes device memory and is slow to make. So if all ranks of a group already have the same group
/// from another communicator (DeviceContext::group_of), they share it and skip step 3. If only some of the ranks have
/// such a group, all repeat steps 1 and 2 to make a new group.
///
/// Not thread-safe: the work queue's lock guards it. A direct call reads the group after the queue has enqueued all
/// calls.
class DeviceSlot {
 public:
  explicit DeviceSlot(const Group& group);
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

  const Group& group() const { return group_; }
  /// Returns the rank's device context, and opens the device if necessary. @throws InvalidArgument  this rank has no
  /// device
  DeviceContext& context();
  /// The communicator's hosts; null if all ranks are on one host.
  const Hierarchy* hierarchy() const { return hierarchy_ ? &*hierarchy_ : nullptr; }
  /// The device group; null before `bring_up`, and if the group would have this rank only.
  DeviceGroup* devices(DeviceReach reach) const { return state_of(reach).devices.get(); }
  std::shared_ptr<DeviceGroup> shared_devices(DeviceReach reach) const { return state_of(reach).devices; }
  /// True once `bring_up` has made the group.
  bool is_up(DeviceReach reach) const { return state_of(reach).is_up; }
  /// Ranks of the group, as ranks of the job.
  std::vector<int> members(DeviceReach reach) const;
  /// True if the transports between hosts accept device memory on all ranks. Valid after `bring_up` of kHost.
  bool sends_device_memory() const { return sends_device_memory_; }
  /// Advances the steps above. Returns true once the group exists, false if the caller must call again. Non-blocking.
  /// @param sequence, made_at  sequence number and agreed time of the operation whose turn it is
  /// @throws Unsupported, DeviceError  on all ranks alike
  bool bring_up(DeviceReach reach, std::uint64_t sequence, DeviceOrder::Time made_at);
  /// Ranks of the job that `bring_up` waits for.
  std::vector<int> waits_for() const;
  /// Cancels `bring_up`, as Operation::withdraw does.
  BufferHazard withdraw();
  /// Releases the groups and the device; called when the communicator ends.
  void close();

 private:
  /// A rank's message in the allgather of step 2. Fixed-size texts, padded with zeros, so that they compare bytewise.
  struct Claim {
    DeviceGroupId id{};                  ///< the new group's id, if this rank is the first of its group
    std::array<char, 64> identity{};     ///< DeviceInfo::identity
    std::array<char, 128> version{};     ///< DeviceRuntime::version
    std::array<char, 64> collectives{};  ///< DeviceRuntime::collectives_version
    std::array<char, 512> problem{};     ///< why this rank cannot take part; else empty
    std::int32_t host = 0, ordinal = 0;
    std::uint64_t sends_device_memory = 0;
    DeviceOrder::Time made_at = 0;  ///< DeviceContext::Group::made_at of a group that can be shared; 0 if there is none
  };
  struct GroupState {
    std::shared_ptr<DeviceGroup> devices;
    bool is_up = false;
  };
  /// The allgather of claims.
  class ClaimExchange;
  GroupState& state_of(DeviceReach reach) { return group_states_[static_cast<std::size_t>(reach)]; }
  const GroupState& state_of(DeviceReach reach) const { return group_states_[static_cast<std::size_t>(reach)]; }
  /// Ranks of the communicator that are in the same group as `rank`, ascending.
  std::vector<int> ranks_with(int rank, DeviceReach reach) const;
  /// Begins step 1, on the device's thread: loading the vendor's library may block, and the library opens sockets.
  void begin_claiming(DeviceReach reach);
  /// @throws Unsupported  a rank has a problem, versions differ, or ranks share a device; the same on all ranks
  void check(const std::vector<Claim>& claims, DeviceReach reach) const;
  /// Logs a warning, once per process, if the ranks' drivers differ. Different drivers work together.
  void warn_of_versions(const std::vector<Claim>& claims) const;
  /// True if all ranks of `rank`'s group already have the same device group.
  bool have_group(const std::vector<Claim>& claims, int rank, DeviceReach reach) const;
  /// True if each group exists on all its ranks or has a new id, so that the ranks can share or join it. The same on
  /// all ranks.
  bool are_decided(const std::vector<Claim>& claims, DeviceReach reach) const;
  /// Begins step 3, on the device's thread.
  void begin_joining(const std::vector<Claim>& claims, DeviceReach reach);

  const Group& group_;
  const std::optional<Hierarchy> hierarchy_;
  std::optional<DeviceContext::ContextRef> context_ref_;
  DeviceContext* context_ = nullptr;        // null until the device is open
  std::array<GroupState, 2> group_states_;  // by DeviceReach
  bool sends_device_memory_ = false;
  // False for a communicator in the caller's order, which needs a group of its own. Becomes false once only some ranks
  // have a group to share.
  bool may_share_;
  // State of `bring_up`. `claim_` and `joined_` are shared with the device's thread, which may be abandoned.
  DeviceContext::Group shared_group_;  // the group that this rank already has for these ranks, if any
  std::shared_ptr<Claim> claim_;
  std::shared_ptr<const DeviceJob> claiming_;  // step 1
  std::unique_ptr<ClaimExchange> exchange_;    // step 2
  std::shared_ptr<std::unique_ptr<DeviceGroup>> joined_;
  std::shared_ptr<const DeviceJob> joining_;  // step 3
};

}  // namespace farandole
