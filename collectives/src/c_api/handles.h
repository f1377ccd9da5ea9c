// SPDX-License-Identifier: Apache-2.0
// Definitions of the opaque handles of farandole/collectives.h.
#pragma once

#include <memory>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/shared_world.h"

// NOLINTBEGIN(readability-identifier-naming): declared in C
struct farandole_comm {
  std::shared_ptr<farandole::SharedWorld> world;  // first, so that the communicator ends before the job
  farandole::Communicator communicator;
};
struct farandole_work {
  farandole::MemorySpace space;  // of the call's buffers
  farandole::Work work;          // invalid if the call was enqueued on a device in the caller's order
};
// NOLINTEND(readability-identifier-naming)
