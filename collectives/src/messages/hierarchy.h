// SPDX-License-Identifier: Apache-2.0
// A communicator over several hosts as a hierarchy: ranks inside a host, and ranks across hosts.
#pragma once

#include <optional>

#include "operation/group.h"

namespace farandole {

/// Const after construction. The same facts on all ranks, but for this rank's own groups.
struct Hierarchy {
  int hosts = 0;
  bool equal = false;      ///< every host has as many ranks
  bool is_leader = false;  ///< this rank is the first of its host
  int local_rank = 0, local_size = 0;
  Group leaders;  ///< the first rank of each host; `rank` is -1 where this one is none
  Group across;   ///< if equal: the ranks of all hosts with this rank's local rank
  /// Nothing if the ranks live on one host, or on hosts of one rank each, or some host's ranks share no memory.
  static std::optional<Hierarchy> of(const Group& group);
};

}  // namespace farandole
