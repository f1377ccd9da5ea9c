// SPDX-License-Identifier: Apache-2.0
// How this process was started: the rule of environment variables. Reads nothing but what it is given.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "farandole/core/settings.h"
#include "farandole/sdk/backend.h"

namespace farandole {

inline constexpr std::string_view kOpenMpi = "mpi_openmpi";
inline constexpr std::string_view kMpich = "mpi_mpich";

/// The value of an environment variable; null if it is not set.
using Variables = std::function<const char*(const char* name)>;

/// What the variables of an MPI's launcher, or of Slurm, say.
struct MpiLauncher {
  std::string_view plugin;  ///< empty if they do not tell
  std::string evidence;     ///< "OMPI_COMM_WORLD_SIZE is set"; empty: not started by such a launcher
  int rank = -1;            ///< -1: they do not tell
  int size = 0;             ///< 0: they do not tell
  bool is_certain = true;   ///< false: other MPIs can be started in the same way
  bool is_slurm = false;    ///< srun has started this process, or the program that did
};

/// What is known of the process itself.
struct LaunchFacts {
  pid_t pid = 0;
  bool is_mpi_running = false;    ///< an MPI is initialised in it
  bool has_communicator = false;  ///< the program has passed a communicator of MPI
};

/// The outcome.
struct Launch {
  enum class Way { kNone, kMpi, kLocal, kTcp, kPmix };
  Way way = Way::kNone;
  std::string reason;   ///< for people; kMpi: only what has to be added to the evidence
  MpiLauncher mpi;      ///< where it counts
  std::string doubt;    ///< kNone: what looks as if the user had meant a job of several processes; or empty
  LaunchedAs launched;  ///< kLocal and kTcp; kPmix: its text, because PMIx knows the rest; kMpi: its text, if the other
                        ///< variables say the same
};

/// Decides, first match first:
///   1. FARANDOLE_RANK and FARANDOLE_SIZE, with FARANDOLE_RENDEZVOUS (tcp) or FARANDOLE_JOB (this host)
///   2. FARANDOLE_MPI=pmix: what PMIx says
///   3. a communicator that was passed, or an initialised MPI, unless FARANDOLE_MPI=off
///   4. an MPI launcher's or Slurm's variables, or FARANDOLE_MPI=openmpi or mpich
///   5. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, all four, as torchrun sets them (tcp)
/// Variables that this process has inherited from one that has joined by them do not count. Where 3 or 4 and 5 are
/// there, they must say the same, but for torchrun within a step of Slurm: there 5 counts, because srun has started
/// torchrun.
/// @throws InvalidArgument  variables contradict each other, or some are missing; shows them
Launch find_launch(const Settings& settings, const Variables& read, const LaunchFacts& facts);

/// What to say where the launcher of another MPI, or of another version, has started a job that uses `library`
/// ("Open MPI 4.1.4"); empty if it is its own, or that is not known.
std::string describe_foreign_launcher(const Variables& read, std::string_view library);

/// Programs that this process starts from now on inherit the variables, but are not part of the job.
void mark_joined(const LaunchedAs& launched);

}  // namespace farandole
