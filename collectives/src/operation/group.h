// SPDX-License-Identifier: Apache-2.0
// What operations need to know about the communicator they run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/collectives/tuning.h"
#include "farandole/internal/endpoint.h"

namespace farandole {

/// Const after construction.
struct Group {
  std::shared_ptr<Endpoint> endpoint;
  std::uint16_t id = 0;
  std::string name = {};     ///< given by the program; empty: the id stands for it
  int rank = 0;              ///< within `members`
  std::vector<int> members;  ///< ranks of the job
  /// Measured choices, or null. Handed on to communicators that are made of this one, also where it does not fit.
  std::shared_ptr<const TuningTable> table;
  bool table_fits = false;  ///< it was measured on ranks like these
  CommunicatorOptions::Progress progress = CommunicatorOptions::Progress::kBackground;  ///< of asynchronous collectives
  bool compares = true;  ///< calls, before data is touched
  bool watches = true;   ///< warns of collectives that take long, and ends them at FARANDOLE_TIMEOUT
  // Limits of shared memory: the settings', else the table's.
  std::size_t one_shot_bytes = 0, slice_bytes = 0;
  Transport* transport = nullptr;  ///< of all messages, in place of the best one to each peer; in tests
  /// Of the first collective; the same on all ranks. Tests begin where a job comes to after years.
  std::uint64_t first_sequence = 1;
  std::vector<int> hosts;  ///< of each member, where tests pretend hosts; empty: where it lives

  int size() const { return static_cast<int>(members.size()); }
  int member(int index) const { return members[static_cast<std::size_t>(index)]; }
  int host_of(int index) const {
    return hosts.empty() ? endpoint->topology().rank(member(index)).host_index : hosts[static_cast<std::size_t>(index)];
  }
  /// True if the ranks of that member's host share memory.
  bool shares_memory(int index) const {
    return endpoint->shares_memory(endpoint->topology().rank(member(index)).host_index);
  }
  Transport& route(int peer) const { return transport != nullptr ? *transport : endpoint->route(member(peer)); }
  /// The first member on another host than this rank; else the first of another process, else this rank. Its route is
  /// the slowest one, and of one kind on all ranks.
  int farthest_member() const;
  Channel channel_to(int peer, std::uint8_t lane, Traffic traffic = Traffic::kShort) const {
    return {id, lane, member(rank), member(peer), traffic};
  }
  Channel channel_from(int peer, std::uint8_t lane, Traffic traffic = Traffic::kShort) const {
    return {id, lane, member(peer), member(rank), traffic};
  }
  /// "communicator 'pairs' of 2 ranks", or by its id.
  std::string describe() const;
  /// What a table must have been measured on to hold here.
  TuningShape shape() const;
};

/// The group, with what follows from its table and from the settings.
Group tuned(Group group);

}  // namespace farandole
