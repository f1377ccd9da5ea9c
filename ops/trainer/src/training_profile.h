// SPDX-License-Identifier: Apache-2.0
// The profile of a training, with the facts of all replicas.
#pragma once

#include "farandole/collectives/communicator.h"
#include "farandole/trainer/profile.h"

namespace farandole::trainer {

/// Sets the facts of the replicas in this replica's profile: which replica it is, and which one is the slowest.
/// Collective; blocks.
void compare_replicas(Communicator& communicator, TrainingProfile& profile);

}  // namespace farandole::trainer
