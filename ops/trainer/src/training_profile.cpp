// SPDX-License-Identifier: Apache-2.0
#include "training_profile.h"

#include <algorithm>
#include <vector>

namespace farandole::trainer {

void compare_replicas(Communicator& communicator, TrainingProfile& profile) {
  std::vector<double> seconds(static_cast<std::size_t>(communicator.size()));
  communicator.allgather(BufferView(&profile.busy_seconds, 1, DType::kF64), seconds);
  const auto slowest = std::max_element(seconds.begin(), seconds.end());
  profile.replica = communicator.rank();
  profile.local_replicas = communicator.placement().local_size;
  profile.slowest_replica = static_cast<int>(slowest - seconds.begin());
  profile.slowest_seconds = *slowest;
}

}  // namespace farandole::trainer
