// SPDX-License-Identifier: Apache-2.0
// The MPI library of this process: whether the program initialised it, and how threads may use it.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <string_view>

namespace farandole::mpi {

struct Runtime {
  bool ours = false;     ///< initialised by Farandole, which then finalises it
  int thread_level = 0;  ///< MPI_THREAD_SINGLE … MPI_THREAD_MULTIPLE
  int tag_upper_bound = 0;
  MPI_Comm parent = MPI_COMM_NULL;  ///< whose processes are joined
};

/// Initialises MPI unless the program has done so (for any thread, or as MPI_Init does), and finds the communicator to
/// join.
/// @throws InvalidArgument  `communicator` (a Fortran handle) is null, an intercommunicator, or passed before MPI_Init
/// @throws Unsupported  MPI was finalised already; it cannot be initialised twice in a process
Runtime start_runtime(const std::optional<int>& communicator, bool many_threads);

/// "Open MPI 4.1.4"; works before MPI_Init.
std::string library_version();
/// "MPI_THREAD_FUNNELED"
std::string_view thread_level_name(int level);

}  // namespace farandole::mpi
