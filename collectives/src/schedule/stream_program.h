// SPDX-License-Identifier: Apache-2.0
// Schedules as programs for a device's stream: groups messages, and groups local steps into launches.
#pragma once

#include <vector>

#include "farandole/collectives/schedule.h"

namespace farandole {

/// A schedule cut into stages, one for each round and one more at the end. A stream runs its tasks in order, so a
/// dependency is met if the dependent step comes later in the program.
///
/// Stage r first runs batches of local steps, then the messages of round r as one group, in which all messages proceed
/// together. A receive-and-reduce becomes two tasks: a receive into bounce memory in its round's group, and a reduction
/// in a batch of the next stage. If the same group still sends from the memory of a plain receive, the message also
/// goes to bounce memory, and is copied in the next stage. The bounce memory is free again at the end of that next
/// stage.
struct StreamProgram {
  using Batch = std::vector<int>;  ///< indices of independent steps, which run in one launch
  struct Stage {
    std::vector<Batch> batches;  ///< local steps, and the second halves of the previous round's bounced receives
    std::vector<int> messages;   ///< indices of independent steps
  };
  std::vector<Stage> stages;     ///< one per round, and one after the last round
  std::vector<bool> is_bounced;  ///< by step: true for a receive that goes to bounce memory
};

/// Makes the program of a schedule. Pure. @throws InternalError  a message waits for a message of its own round or of a
/// later round; such a schedule can run on hosts only
StreamProgram make_stream_program(const Schedule& schedule);

}  // namespace farandole
