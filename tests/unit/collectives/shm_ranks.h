// SPDX-License-Identifier: Apache-2.0
// The ranks of a job below the communicator: for each rank a group and a view of the shared memory.
#pragma once

#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "farandole/core/world.h"
#include "operation/group.h"
#include "shared_memory/shm_group.h"

namespace farandole::test {

/// All ranks are replicas of this process and share memory by addresses. A slot holds `slot_bytes`, which also is the
/// limit of one-shot collectives.
class ShmRanks {
 public:
  /// @param hosts  simulated host of each rank; empty: all ranks on one host
  /// @param transport  transport of messages; null: inproc
  explicit ShmRanks(int size, std::size_t slot_bytes = 1024, const std::vector<int>& hosts = {},
                    Transport* transport = nullptr)
      : world_(options_for(size)), groups_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_[static_cast<std::size_t>(rank)];
      group.endpoint = world_.endpoint(rank).share();
      group.id = 5;
      group.rank = rank;
      group.members.resize(groups_.size());
      std::iota(group.members.begin(), group.members.end(), 0);
      group.hosts = hosts;
      group.one_shot_bytes = group.slice_bytes = slot_bytes;
      group.transport = transport;
      shm_.push_back(std::make_unique<ShmGroup>(group));
    }
  }

  /// Connects every rank with its peers.
  void connect() {
    for (bool all = false; !all;) {
      all = true;
      for (const auto& shm : shm_) all = shm->connect() && all;
    }
  }
  int size() const { return static_cast<int>(groups_.size()); }
  const Group& group(int rank) const { return groups_[static_cast<std::size_t>(rank)]; }
  ShmGroup& shm(int rank) { return *shm_[static_cast<std::size_t>(rank)]; }

 private:
  static WorldOptions options_for(int size) {
    WorldOptions options;
    options.replicas = size;
    options.alone = true;
    return options;
  }

  World world_;
  std::vector<Group> groups_;
  std::vector<std::unique_ptr<ShmGroup>> shm_;
};

}  // namespace farandole::test
