// SPDX-License-Identifier: Apache-2.0
// The mirrored strategy: one model, the same on all replicas.
#pragma once

#include <functional>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Runs the same training on every replica of a job: `mpirun -np 2` with 2 replicas per process is four replicas.
/// One per process; joins the job when made and leaves it when destroyed (see World, whose errors it throws).
class MirroredStrategy {
 public:
  explicit MirroredStrategy(const WorldOptions& options = {}) : world_(options) {}

  /// Replicas of the whole job.
  int num_replicas_in_sync() const { return world_.size(); }
  const World& world() const { return world_; }

  /// Runs `replica` on a thread per replica of this process, each with its rank's communicator. Collective; blocks
  /// until all have returned. @throws  the first exception that left one; the others were woken with PeerLost
  void run(const std::function<void(Communicator&)>& replica) { run_replicas(world_, replica); }

  /// Combines one value per replica; every replica gets the result. Called by all replicas inside `run`. Blocks.
  static double reduce(Communicator& replica, ReduceOp op, double value);

 private:
  World world_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
