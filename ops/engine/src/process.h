// SPDX-License-Identifier: Apache-2.0
// The one engine of this process.
#pragma once

#include <memory>

#include "farandole/collectives/communicator.h"
#include "farandole/core/world.h"
#include "tensor_engine.h"

namespace farandole {

/// A job and this process's seat in it, in the order in which they are made.
struct EngineProcess {
  explicit EngineProcess(const WorldOptions& options)
      : world(options), communicator(Communicator::of_world(world)), engine(communicator) {}
  World world;
  Communicator communicator;
  TensorEngine engine;
};

/// Null while there is none. A holder keeps it alive.
std::shared_ptr<EngineProcess> engine_process();
/// Replaces it; the old one ends when no thread holds it any more.
std::shared_ptr<EngineProcess> exchange_engine_process(std::shared_ptr<EngineProcess> process);

}  // namespace farandole
