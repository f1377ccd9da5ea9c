// SPDX-License-Identifier: Apache-2.0
// The engine of this process.
#pragma once

#include <memory>

#include "farandole/collectives/communicator.h"
#include "farandole/internal/shared_world.h"
#include "tensor_engine.h"

namespace farandole {

/// The job, a communicator of all its ranks, and the engine; constructed in this order.
struct EngineProcess {
  explicit EngineProcess(const WorldOptions& options)
      : shared(SharedWorld::join(options)), communicator(shared->make_communicator()), engine(communicator) {}
  World& world() const { return shared->world(); }
  std::shared_ptr<SharedWorld> shared;
  Communicator communicator;
  TensorEngine engine;
};

/// Returns the running engine, or null. The engine lives as long as anybody holds a copy of the pointer. Thread-safe.
std::shared_ptr<EngineProcess> engine_process();
/// Replaces the running engine and returns the old engine, which ends when the last holder releases it. Thread-safe.
std::shared_ptr<EngineProcess> exchange_engine_process(std::shared_ptr<EngineProcess> process);

}  // namespace farandole
