// SPDX-License-Identifier: Apache-2.0
// MPI's error codes become exceptions here, and nowhere else.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace farandole::mpi {

/// MPI's own words for `code`.
std::string error_text(int code);

/// @throws TransportError  "<what>: <MPI's own words>"
[[noreturn]] void throw_mpi_error(int code, std::string_view what);

/// `what` names the call and its purpose; it is read only if the call has failed.
inline void check(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw_mpi_error(code, what);
}

}  // namespace farandole::mpi
