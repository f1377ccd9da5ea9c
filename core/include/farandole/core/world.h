// SPDX-License-Identifier: Apache-2.0
// A World is this process's membership in a job.
#pragma once

#include <memory>
#include <optional>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/core/topology.h"

namespace farandole {
class Job;
}

namespace farandole FARANDOLE_API {

class Endpoint;

/// How to join.
struct WorldOptions {
  int replicas = 1;  ///< ranks that live in this process as threads, 1 … 64
  std::optional<int>
      mpi_communicator;   ///< MPI_Comm_c2f of a communicator of yours; else all processes that were started
  int expected_size = 0;  ///< ranks that there must be in all; 0: any number
  bool alone = false;     ///< a job of this process only, whatever started it
  /// False: an MPI that is not initialised yet is initialised as by MPI_Init, for the main thread only. Its shortest
  /// calls are a little faster then (Open MPI: 20 % for 4 bytes), but asynchronous collectives advance only inside
  /// calls, and `replicas` must be 1.
  bool mpi_from_any_thread = true;
};

/// Joins the job that it finds: one started by mpirun or Slurm through the MPI plug-in, an MPI that the program has
/// initialised itself, or processes that FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_RENDEZVOUS (on one host
/// FARANDOLE_JOB), or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT were given to;
/// without them the job is this process alone. Leaves it when destroyed: waits for the other
/// processes if all is well, and tells them if an exception is on its way through.
///
/// In a program that has initialised MPI itself: with MPI_THREAD_SERIALIZED it must not call MPI while collectives are
/// pending, because Farandole calls it from another thread then. A collective is pending until its call or `Work::wait`
/// has returned or thrown, `Work::test` has returned true, or the last copy of its Work is gone; while none is pending
/// Farandole makes no call of MPI. The engine (`farandole/engine.h`, Python) may call it at any time until it is shut
/// down. With FUNNELED or SINGLE asynchronous collectives advance only inside calls of the main thread; with MULTIPLE
/// nothing is restricted.
///
/// One World at a time per process; Worlds that are `alone` may live beside it, in any number. It ends when it is
/// destroyed, after what is still pending has completed. Communicators that outlive it know who their ranks were; all
/// else that is asked of them raises InvalidArgument.
///
/// A process that is forked from a rank is no rank. Everything that belongs to a World throws InvalidArgument there and
/// says so; destroying it does nothing. Such a child may make a World of its own: alone, or, with FARANDOLE_RANK,
/// FARANDOLE_SIZE and FARANDOLE_JOB of its own, in another job. MPI belongs to the parent.
///
/// Collective over all processes of the job. Blocks.
/// @throws InvalidArgument  a setting is wrong, the number of ranks is not the expected one, or there is a World.
/// @throws Unsupported  no plug-in for the MPI that started the program, or replicas with an MPI without thread
/// support.
class World {
 public:
  explicit World(const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The job's rank of this process's first replica.
  int rank() const;
  /// Ranks in the job.
  int size() const;
  int replicas() const;
  const Topology& topology() const;
  const Settings& settings() const;
  /// "Open MPI 4.1.4" or "none", and why.
  const std::string& backend_description() const;
  /// "tcp (auto: …; connections: 3 of 7 peers)": what carries messages between hosts, and why.
  std::string network_description() const;
  Endpoint& endpoint(int replica = 0);

 private:
  /// @throws InvalidArgument  in a forked child
  Job& job() const;
  std::shared_ptr<Job> job_;  // communicators share it
};

/// @throws InvalidArgument  this process was forked from a process with a World that was not `alone`
void check_not_forked();

}  // namespace FARANDOLE_API
