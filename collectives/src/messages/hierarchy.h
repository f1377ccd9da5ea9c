// SPDX-License-Identifier: Apache-2.0
// A communicator over several hosts: which rank lives where.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "operation/group.h"

namespace farandole {

/// Const after construction. The same facts on all ranks, but for `host` and `local`.
struct Hierarchy {
  std::vector<std::vector<int>> hosts;  ///< the ranks of each host, in the communicator's order
  int host = 0, local = 0;              ///< this rank's place in them

  int host_count() const { return static_cast<int>(hosts.size()); }
  const std::vector<int>& ranks_of(int index) const { return hosts[static_cast<std::size_t>(index)]; }
  int local_size(int index) const { return static_cast<int>(ranks_of(index).size()); }
  int local_size() const { return local_size(host); }
  /// Ranks of the smallest host.
  int least_local_size() const;
  /// Of the largest one.
  int most_local_size() const;
  /// All hosts have as many ranks, and those of a host follow each other.
  bool is_regular() const;
  /// All hosts have as many ranks, and the ranks follow each other from host to host.
  bool is_round_robin() const;
  struct Place {
    int host = 0, local = 0;
  };
  Place place_of(int rank) const;

  /// @param host_of_rank  a number for each rank's host; hosts are in the order of these numbers
  static Hierarchy of(const std::vector<int>& host_of_rank, int rank);
  /// Whatever memory they share.
  static Hierarchy by_host(const Group& group);
  /// Nothing if the ranks live on one host, or on hosts of one rank each, or some host's ranks share no memory.
  static std::optional<Hierarchy> of(const Group& group);
};

/// These ranks of the group, for messages among them; `rank` is -1 where this one is none of them.
Group group_across(const Group& group, const std::vector<int>& ranks);

}  // namespace farandole
