// SPDX-License-Identifier: Apache-2.0
// Joining a job: a World is this process's membership.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/core/settings.h"
#include "farandole/core/topology.h"

namespace farandole {
class Job;
}

namespace farandole FARANDOLE_API {

class Endpoint;

/// The process's place in its job according to the program, and a way to reach the other processes, for example a
/// key-value store. So a program that starts its processes itself needs no launcher:
///
///   World world({.bootstrap = Bootstrap{rank, size, [&](std::string_view text) { return store.broadcast(text); }}});
struct Bootstrap {
  int process = 0;    ///< number of this process, from 0
  int processes = 1;  ///< number of processes in the job
  /// Broadcasts a text of at most 4095 characters, none of them a line end, from process 0: returns in every process
  /// the text that process 0 passes; other processes pass an empty text. Called at most twice, by the joining thread,
  /// and only if no launcher has started the job. May block; exceptions pass through. Whoever reads the texts can join
  /// the job. Empty: a launcher must have started the job.
  std::function<std::string(std::string_view of_process_0)> share = {};
  /// Maximum time for which a join by `share` waits for other processes, at each of its steps; then Timeout. 0:
  /// FARANDOLE_TIMEOUT. If both are set, the shorter one counts.
  Seconds timeout{0};
  /// What sets `timeout` in the program, for the text of the error: "init_process_group(timeout=...)".
  std::string timeout_name = "Bootstrap::timeout";
  /// What the user must do in all processes so that they join: ends warnings and errors about processes that are
  /// missing in a join by `share`. Empty: nothing is said.
  std::string advice = {};
};

/// Options of World's constructor.
struct WorldOptions {
  /// Number of ranks that run in this process as threads, 1 … 64. Default: 1.
  int replicas = 1;
  /// Fortran handle (MPI_Comm_c2f) of the program's communicator whose processes form the job. Default: all processes
  /// that the launcher started.
  std::optional<int> mpi_communicator = {};
  /// Number of ranks that the job must have. Default 0: any number.
  int expected_size = 0;
  /// True: the job is this process alone, whatever started the process. Default: false.
  bool alone = false;
  /// Thread level for which the World initialises MPI, unless the program has initialised MPI. True:
  /// MPI_THREAD_MULTIPLE. False: the main thread only, as by MPI_Init. MPI's shortest calls are then a little faster
  /// (Open MPI: 20 % for 4 bytes), but asynchronous collectives advance only inside calls, and `replicas` must be 1.
  /// Default: true.
  bool mpi_from_any_thread = true;
  /// Device of each rank of this process: the number of the device among those that the process sees, one number for
  /// each of the `replicas`. Default, empty: FARANDOLE_DEVICE selects. The device is opened when it is first used.
  std::vector<int> devices = {};
  /// True: the number of ranks in this process is that of its devices, and `replicas` and `devices` are ignored. The
  /// processes of a host that see the same devices divide them: 2 processes that see 4 devices have 2 ranks each.
  /// Processes that see other devices, by CUDA_VISIBLE_DEVICES, keep all of theirs. FARANDOLE_DEVICE restricts the
  /// devices to those that it lists, or to one for each process. A process for which no device is left has one rank,
  /// and so has a process whose MPI allows the main thread only. Loads the driver. Default: false.
  bool replica_for_each_device = false;
  /// Place of this process in the job. If a launcher has started the job (mpirun, Slurm, FARANDOLE_RANK), the place
  /// must be the launcher's. Otherwise the processes join by Bootstrap::share, over TCP and shared memory, with a fresh
  /// key. Default: none, the launcher's variables decide.
  std::optional<Bootstrap> bootstrap = {};
};

/// Membership of this process in a job. Make a World at the start of the program and keep it until the last collective:
///
///   farandole::World world;
///   farandole::Communicator ranks(world);
///   ranks.allreduce(values, farandole::ReduceOp::kSum);
///
/// Joining: the constructor joins the job that it finds:
/// - processes started with FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_RENDEZVOUS (on one host FARANDOLE_JOB)
///   or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT;
/// - an MPI that the program has initialised;
/// - a job started by mpirun or Slurm, through the MPI plug-in, or with FARANDOLE_MPI=pmix through PMIx;
/// - the processes of WorldOptions::bootstrap.
/// If the constructor finds no job, the job is this process alone.
///
/// Leaving: the destructor completes pending collectives and waits for the other processes to leave, too. If an
/// exception is passing through, the destructor reports the failure to the other processes instead. A communicator that
/// outlives its World still knows its ranks; every other function of the communicator raises InvalidArgument.
///
/// Number: a process has at most one World at a time, plus any number of Worlds that are `alone`.
///
/// Threads, in a program that has initialised MPI itself: with MPI_THREAD_MULTIPLE nothing is restricted. With
/// MPI_THREAD_SERIALIZED the program must not call MPI while collectives are pending, because Farandole calls MPI from
/// another thread. A collective is pending until the blocking call or `Work::wait` has returned or thrown, `Work::test`
/// has returned true, or the last copy of the Work is destroyed; Farandole makes no MPI call while no collective is
/// pending. The engine (`farandole/engine.h`, Python) may call MPI at any time until the engine is shut down. With
/// FUNNELED or SINGLE asynchronous collectives advance only inside calls of the main thread.
///
/// Fork: a process forked from a rank is not a rank. In the child every use of the World and its communicators throws
/// an InvalidArgument that says so, and destroying the World is a no-op. The child may make its own World: `alone`, or
/// in another job with its own FARANDOLE_RANK, FARANDOLE_SIZE and FARANDOLE_JOB. The child cannot use MPI, which
/// remains the parent's.
class World {
 public:
  /// Joins the job. Collective over all processes. Blocks.
  /// @throws InvalidArgument  a setting is wrong, the number of ranks is not the expected one, the place in the job is
  /// not that of `bootstrap`, or the process already has a World
  /// @throws Unsupported  there is no plug-in for the MPI that started the program, or several replicas are wanted and
  /// MPI has no thread support
  /// @throws Error  the processes did not all join: PeerLost, Timeout or TransportError; or the tuning table cannot be
  /// read: DataError
  explicit World(const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Rank of this process's first replica, in the job.
  int rank() const;
  /// Number of ranks in the job.
  int size() const;
  /// Number of ranks in this process.
  int replicas() const;
  const Topology& topology() const;
  /// Settings of this process. Settings that must be the same on all ranks have rank 0's values.
  const Settings& settings() const;
  /// Name of the backend that joined the job: "mpi_openmpi", "mpi_mpich", "pmix", "tcp", "local", or "none" for a job
  /// of this process alone.
  const std::string& backend_name() const;
  /// How the job was joined, and why: "Open MPI 4.1.4 …", or "none …" for a job of one process.
  const std::string& backend_description() const;
  /// Transport between hosts, and why it was chosen: "tcp (auto: …; connections: 3 of 7 peers)".
  std::string network_description() const;
  /// One rank's interface to the job, for other parts of Farandole. @param replica  index among the process's ranks
  Endpoint& endpoint(int replica = 0);

 private:
  /// @throws InvalidArgument  in a forked child
  Job& job() const;
  std::shared_ptr<Job> job_;  // shared with communicators, which may outlive the World
};

/// Throws unless this process may join a job. @throws InvalidArgument  the process was forked from a process with a
/// World that was not `alone`
void check_not_forked();

}  // namespace FARANDOLE_API
