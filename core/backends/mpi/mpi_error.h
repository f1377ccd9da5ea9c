// SPDX-License-Identifier: Apache-2.0
// Conversion of MPI's error codes to exceptions. No other file interprets the codes.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace farandole::mpi {

/// MPI_Error_string of `code`.
std::string error_text(int code);

/// @throws TransportError  "<what>: <error_text>"
[[noreturn]] void throw_mpi_error(int code, std::string_view what);

/// Throws if `code` is an error. @param what  names the call and its purpose, for the message
inline void check(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw_mpi_error(code, what);
}

}  // namespace farandole::mpi
