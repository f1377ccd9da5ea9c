// SPDX-License-Identifier: Apache-2.0
// The mirrored strategy: every replica holds the same model.
#pragma once

#include <functional>

#include "farandole/collectives/communicator.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Runs the same function on every replica of a job. Use a strategy to train on several replicas per process (threads),
/// several processes, or both: `mpirun -np 2` with 2 replicas per process gives four replicas.
///
///     MirroredStrategy strategy({.replicas = 2});
///     strategy.run([&](Communicator& replica) { Trainer<float>(replica, …).fit(); });
///
/// Make at most one object per process. The constructor joins the job, and the destructor leaves it: see World for
/// errors and blocking.
class MirroredStrategy {
 public:
  explicit MirroredStrategy(const WorldOptions& options = {}) : world_(options) {}

  /// Number of replicas in the job.
  int num_replicas_in_sync() const { return world_.size(); }
  const World& world() const { return world_; }

  /// Calls `replica` once for each replica of this process, on a thread of its own and with the communicator of its
  /// rank. Collective; blocks until all calls have returned.
  /// @throws  the first exception that left `replica` on this process; the waits of the other replicas end with
  /// PeerLost
  void run(const std::function<void(Communicator&)>& replica) { run_replicas(world_, replica); }

  /// Reduces one value per replica, and returns the result on every replica. Call it on all replicas, inside `run`.
  /// Blocks.
  static double reduce(Communicator& replica, ReduceOp op, double value);

 private:
  World world_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
