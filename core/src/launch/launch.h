// SPDX-License-Identifier: Apache-2.0
// How this process was started, derived from environment variables. Pure: the caller passes all inputs.
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

/// Returns the value of an environment variable, or null if the variable is not set.
using Variables = std::function<const char*(const char* name)>;

/// Launcher of an MPI, or Slurm, as found in environment variables.
struct MpiLauncher {
  std::string_view plugin;  ///< plug-in of the launcher's MPI; empty if unknown
  std::string evidence;     ///< "OMPI_COMM_WORLD_SIZE is set"; empty if no such launcher started this process
  int rank = -1;            ///< -1: unknown
  int size = 0;             ///< 0: unknown
  bool is_certain = true;   ///< false if other MPIs can be started in the same way
  bool is_slurm = false;    ///< srun has started this process, or the program that started this process
};

/// Facts about the process that its environment does not show.
struct LaunchFacts {
  pid_t pid = 0;
  bool is_mpi_running = false;    ///< an MPI is initialised in this process
  bool has_communicator = false;  ///< the program has passed an MPI communicator
};

/// How this process joins its job.
struct Launch {
  enum class Way { kNone, kMpi, kLocal, kTcp, kPmix };
  Way way = Way::kNone;
  std::string reason;   ///< for messages; kMpi: an addition to the evidence
  MpiLauncher mpi;      ///< launcher whose variables are used, if any
  std::string doubt;    ///< kNone: sign that the user may have meant a job of several processes; or empty
  LaunchedAs launched;  ///< kLocal, kTcp: complete; kPmix: only the text, because PMIx knows the rest; kMpi: only the
                        ///< text, if torchrun's variables are set
};

/// Determines how this process was started. The first match counts:
///   1. FARANDOLE_RANK and FARANDOLE_SIZE, with FARANDOLE_RENDEZVOUS (tcp) or FARANDOLE_JOB (this host)
///   2. FARANDOLE_MPI=pmix: the launcher's PMIx
///   3. an MPI communicator passed by the program, or an initialised MPI, unless FARANDOLE_MPI=off
///   4. variables of an MPI launcher or of Slurm, or FARANDOLE_MPI=openmpi or mpich
///   5. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, all four, as torchrun sets them (tcp)
/// Variables inherited from a parent that has joined a job by these variables are ignored. If the variables of both 4
/// and 5 are set, they must agree on rank and size, unless FARANDOLE_MPI names the MPI or the program passes a
/// communicator. Exception: if torchrun runs within a step of Slurm, 5 counts before 4, because srun has started
/// torchrun.
/// @throws InvalidArgument  variables contradict each other, or some are missing; the message shows the variables
Launch find_launch(const Settings& settings, const Variables& read, const LaunchFacts& facts);

/// Returns a warning if the launcher of another MPI, or of another version, has started a job that uses `library`
/// ("Open MPI 4.1.4"); empty if the launcher is the library's own or unknown.
std::string describe_foreign_launcher(const Variables& read, std::string_view library);

/// Marks the environment, so that programs started by this process from now on do not take the inherited variables for
/// their own and do not join the job.
void mark_joined(const LaunchedAs& launched);

}  // namespace farandole
