// SPDX-License-Identifier: Apache-2.0
// Group: the properties of a communicator that operations use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/collectives/tuning.h"
#include "farandole/internal/endpoint.h"

namespace farandole {

class StallMonitor;

/// Members and properties of one communicator on one rank. Const after construction. More than 15 members: operations
/// read each of them in many places.
struct Group {
  std::shared_ptr<Endpoint> endpoint;
  std::uint16_t id = 0;
  std::uint64_t generation = 0;  ///< differs between successive communicators with the same id
  std::string name = {};         ///< the program's name for messages; empty: messages use the id
  int rank = 0;                  ///< this rank's index in `members`
  std::vector<int> members;      ///< ranks of the job, in the order of the communicator
  /// Measured choices, or null. `split` and `duplicate` pass the table on, even if it does not fit this communicator.
  std::shared_ptr<const TuningTable> table;
  bool table_fits = false;  ///< the table's shape is equal to shape()
  CommunicatorOptions::Progress progress = CommunicatorOptions::Progress::kBackground;  ///< see CommunicatorOptions
  bool compares = true;  ///< ranks compare their calls before data is touched
  /// Set if the device order is the caller's: identifies the calls that are enqueued directly (DirectCalls), whose
  /// sequence is separate from the communicator's other collectives.
  std::optional<CommunicatorKey> direct = {};
  Seconds timeout{0};  ///< CommunicatorOptions::timeout; 0: the setting
  /// Calls are messages of device memory between the two ranks, see DeviceMessages. `name` is the whole text for
  /// errors.
  bool carries_messages = false;
  bool watches = true;  ///< warn about stalled collectives, and end them at FARANDOLE_TIMEOUT
  /// Sizes used by the shared-memory algorithms (FARANDOLE_ONE_SHOT_BYTES, FARANDOLE_SLICE_BYTES): from the table if it
  /// fits and the user has not changed the setting, otherwise from the setting.
  std::size_t one_shot_bytes = 0, slice_bytes = 0;
  Transport* transport = nullptr;  ///< set by tests: transport of all messages; null: the best transport to each peer
  /// Sequence number of the first collective; the same on all ranks. Tests set numbers that real jobs reach only after
  /// years.
  std::uint64_t first_sequence = 1;
  std::vector<int> hosts;  ///< set by tests that simulate hosts: host index of each member; empty: the real hosts

  int size() const { return static_cast<int>(members.size()); }
  int member(int index) const { return members[static_cast<std::size_t>(index)]; }
  int host_of(int index) const {
    return hosts.empty() ? endpoint->topology().rank(member(index)).host_index : hosts[static_cast<std::size_t>(index)];
  }
  /// Watches a wait for calls of this communicator, which begins now. An error is due after `timeout`, or after
  /// FARANDOLE_TIMEOUT if that is 0; never if `watches` is false. @param always  ignore `watches`
  StallMonitor stall_monitor(bool always = false) const;
  /// True if the ranks on the host of member `index` share memory.
  bool shares_memory(int index) const {
    return endpoint->shares_memory(endpoint->topology().rank(member(index)).host_index);
  }
  Transport& route(int peer) const { return transport != nullptr ? *transport : endpoint->route(member(peer)); }
  /// Job rank of a member that this rank reaches by its slowest route: the first member on another host, else the first
  /// member in another process, else this rank. The route is of the same kind on all ranks.
  int farthest_member() const;
  Channel channel_to(int peer, std::uint8_t lane, Traffic traffic = Traffic::kShort) const {
    return {id, lane, member(rank), member(peer), traffic};
  }
  Channel channel_from(int peer, std::uint8_t lane, Traffic traffic = Traffic::kShort) const {
    return {id, lane, member(peer), member(rank), traffic};
  }
  /// Identifies the communicator in messages that may arrive after its end.
  CommunicatorKey key() const { return {id, generation}; }
  /// Text for messages: "communicator 'pairs' of 2 ranks", with the id if the communicator has no name.
  std::string describe() const;
  /// Placement and transport of this communicator. A tuning table fits if its shape is equal.
  TuningShape shape() const;
};

/// Returns the group with table_fits, one_shot_bytes and slice_bytes set, from its table and the settings.
Group tuned(Group group);

}  // namespace farandole
