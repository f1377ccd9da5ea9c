// SPDX-License-Identifier: Apache-2.0
// The hosts of a communicator, and the ranks of each host.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "operation/group.h"

namespace farandole {

/// The hosts of a communicator and the ranks on each host. Equal on all ranks, except for `host` and `local`. Const
/// after construction.
struct Hierarchy {
  std::vector<std::vector<int>> hosts;  ///< ranks of each host, ascending
  int host = 0, local = 0;              ///< this rank is hosts[host][local]

  int host_count() const { return static_cast<int>(hosts.size()); }
  const std::vector<int>& ranks_of(int index) const { return hosts[static_cast<std::size_t>(index)]; }
  int local_size(int index) const { return static_cast<int>(ranks_of(index).size()); }
  int local_size() const { return local_size(host); }
  /// Number of ranks of the smallest host.
  int min_local_size() const;
  /// Number of ranks of the largest host.
  int max_local_size() const;
  /// True if all hosts have equally many ranks, and the ranks of each host are consecutive: 0 1 | 2 3 | 4 5.
  bool is_regular() const;
  /// True if all hosts have equally many ranks, and consecutive ranks live on consecutive hosts: 0 3 | 1 4 | 2 5.
  bool is_round_robin() const;
  struct Place {
    int host = 0, local = 0;
  };
  /// Host and local rank of a rank; {-1, -1} if the communicator has no such rank.
  Place place_of(int rank) const;

  /// @param host_of_rank  host number of each rank; `hosts` is sorted by these numbers
  static Hierarchy of(const std::vector<int>& host_of_rank, int rank);
  /// The hosts of a group, whether or not the ranks of a host share memory.
  static Hierarchy by_host(const Group& group);
  /// The hosts of a group, if hierarchical methods can use them. Nothing if the group has a single host, or a single
  /// rank per host, or if the ranks of any host do not share memory.
  static std::optional<Hierarchy> of(const Group& group);
};

/// Returns the group of some ranks of `group`, for messages among them. Its `rank` is -1 if this rank is not a member.
Group group_across(const Group& group, const std::vector<int>& ranks);

}  // namespace farandole
