// SPDX-License-Identifier: Apache-2.0
// What the processes of a job tell each other while they join.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/sdk/backend.h"

namespace farandole {

/// What each process passes, by process. Collective over the processes of the group; blocks.
template <class Part>
std::vector<Part> gather_parts(ProcessGroup& group, const Part& mine) {
  std::vector<Part> all(static_cast<std::size_t>(group.process_count()));
  group.allgather(&mine, all.data(), sizeof mine);
  return all;
}

}  // namespace farandole
