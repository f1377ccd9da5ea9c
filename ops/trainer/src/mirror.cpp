// SPDX-License-Identifier: Apache-2.0
#include "mirror.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "farandole/collectives/agreement.h"

namespace farandole::trainer {

void check_mirrored(Communicator& communicator, std::uint32_t parameters, std::uint32_t statistics) {
  const std::array<std::int64_t, 2> mine{parameters, statistics};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(communicator.size()));
  communicator.allgather(mine, all);
  for (std::size_t i = 2; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    raise_on_all(
        ErrorKind::kInternal,
        fmt::format("replicas have parted: the checksum of the {} is {:08x} on rank {}, but {:08x} on rank 0. A "
                    "layer that computes something else on each replica can be the cause",
                    i % 2 == 0 ? "parameters" : "moving statistics", all[i], i / 2, all[i % 2]));
  }
}

}  // namespace farandole::trainer
