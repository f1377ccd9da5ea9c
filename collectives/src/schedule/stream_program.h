// SPDX-License-Identifier: Apache-2.0
// Schedules as programs for a stream: which steps go into one group of messages, and which into one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/collectives/schedule.h"

namespace farandole {

/// A schedule cut at its rounds. A stream runs one thing after another, so a dependency is kept where a step comes
/// later in the program than those that it waits for.
///
/// Stage r holds what is done before the messages of round r, in batches, and then these messages, as one group that
/// proceeds together. What a round receives and reduces goes to bounce memory first, and is reduced in the next stage;
/// so does what is received into memory that the same group still sends from, and is copied there. Bounce memory is
/// free again when that stage has ended.
struct StreamProgram {
  using Batch = std::vector<int>;  ///< steps, none of which waits for another: one launch
  struct Stage {
    std::vector<Batch> batches;  ///< of local steps, and of bounced receives of the round before
    std::vector<int> messages;   ///< steps; none waits for another
  };
  std::vector<Stage> stages;     ///< one for each round, and one after the last
  std::vector<bool> is_bounced;  ///< for each step: a receive that goes to bounce memory
};

/// Pure. @throws InternalError  a message waits for one of its own round, or for a later one: the schedule is for hosts
/// only
StreamProgram make_stream_program(const Schedule& schedule);

}  // namespace farandole
