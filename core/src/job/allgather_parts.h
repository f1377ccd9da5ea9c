// SPDX-License-Identifier: Apache-2.0
// Allgather of structs among the processes of a job, used while the processes join the job.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/sdk/backend.h"

namespace farandole {

/// Returns every process's `mine`, in the order of processes. Collective over the processes of the group; blocks.
template <class Part>
std::vector<Part> allgather_parts(ProcessGroup& group, const Part& mine) {
  std::vector<Part> all(static_cast<std::size_t>(group.process_count()));
  group.allgather(&mine, all.data(), sizeof mine);
  return all;
}

}  // namespace farandole
