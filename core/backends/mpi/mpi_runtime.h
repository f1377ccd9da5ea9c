// SPDX-License-Identifier: Apache-2.0
// The MPI library of this process: initialisation, properties and errors.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <string_view>

namespace farandole::mpi {

/// Properties of the initialised MPI library.
struct Runtime {
  bool ours = false;     ///< true if Farandole has initialised MPI, and must finalise MPI
  int thread_level = 0;  ///< MPI_THREAD_SINGLE … MPI_THREAD_MULTIPLE
  int tag_upper_bound = 0;
  MPI_Comm parent = MPI_COMM_NULL;  ///< communicator of the processes that join
};

/// Initialises MPI unless the program has done so, and finds the communicator to join.
/// @param many_threads  true: requests MPI_THREAD_MULTIPLE; false: MPI_THREAD_SINGLE, as MPI_Init does
/// @throws InvalidArgument  `communicator` (a Fortran handle) is null, an intercommunicator, or passed before MPI_Init
/// @throws Unsupported  MPI was finalised already, and cannot be initialised twice in a process
Runtime start_runtime(const std::optional<int>& communicator, bool many_threads);

/// "Open MPI 4.1.4". May be called before MPI_Init.
std::string library_version();
/// "MPI_THREAD_FUNNELED"
std::string_view thread_level_name(int level);

/// MPI_Error_string of `code`.
std::string error_text(int code);

/// @throws TransportError  "<what>: <error_text>"
[[noreturn]] void throw_mpi_error(int code, std::string_view what);

/// Throws if `code` is an error. @param what  names the call and its purpose, for the message
inline void check(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw_mpi_error(code, what);
}

}  // namespace farandole::mpi
