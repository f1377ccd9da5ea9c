// SPDX-License-Identifier: Apache-2.0
#include "mpi_error.h"

#include <fmt/format.h>

#include "farandole/core/error.h"

namespace farandole::mpi {

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error code {}", code);
  return {text, static_cast<std::size_t>(length)};
}

void throw_mpi_error(int code, std::string_view what) {
  throw TransportError(fmt::format("{}: {}", what, error_text(code)));
}

}  // namespace farandole::mpi
