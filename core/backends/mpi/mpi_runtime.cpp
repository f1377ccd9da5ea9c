// SPDX-License-Identifier: Apache-2.0
#include "mpi_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole::mpi {
namespace {

MPI_Comm parent_communicator(const std::optional<int>& handle) {
  if (!handle) return MPI_COMM_WORLD;
  MPI_Comm communicator = MPI_Comm_f2c(static_cast<MPI_Fint>(*handle));
  if (communicator == MPI_COMM_NULL) {
    throw InvalidArgument(
        "joining MPI: the communicator that was passed is MPI_COMM_NULL; pass MPI_Comm_c2f(comm) of a communicator "
        "that this process belongs to");
  }
  int is_intercommunicator = 0;
  check(MPI_Comm_test_inter(communicator, &is_intercommunicator),
        "MPI_Comm_test_inter of the communicator that was passed");
  if (is_intercommunicator != 0) {
    throw InvalidArgument(
        "joining MPI: the communicator that was passed is an intercommunicator; merge it with MPI_Intercomm_merge "
        "first");
  }
  return communicator;
}

int tag_upper_bound() {
  int* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr of MPI_TAG_UB");
  // The standard guarantees 32767.
  return found != 0 ? *value : 32767;
}

}  // namespace

Runtime start_runtime(const std::optional<int>& communicator, bool many_threads) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Unsupported(
        "joining MPI: MPI was finalised in this process already, and it cannot be initialised twice; keep one World "
        "alive, or call MPI_Init and MPI_Finalize yourself around all of them");
  }
  Runtime runtime;
  if (initialized == 0) {
    if (communicator)
      throw InvalidArgument("joining MPI: a communicator was passed, but MPI is not initialised; call MPI_Init first");
    const SignalsDiverted from_threads_of_mpi;
    const int wanted = many_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, wanted, &runtime.thread_level), "MPI_Init_thread");
    runtime.ours = true;
    // MPICH reports a failed MPI_Test to the error handlers of these communicators, not to the handler of the message's
    // communicator. A program that has initialised MPI itself keeps its own handlers here: by default MPI then aborts
    // the job with its own message.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  } else {
    check(MPI_Query_thread(&runtime.thread_level), "MPI_Query_thread");
  }
  runtime.tag_upper_bound = tag_upper_bound();
  runtime.parent = parent_communicator(communicator);
  return runtime;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "MPI of unknown version";
  // "Open MPI v4.1.4, package: …" or "MPICH Version:<tab>4.0.2<newline>…".
  std::string line(text, static_cast<std::size_t>(length));
  line.resize(std::min(line.find_first_of(",\n"), line.size()));
  if (const auto label = line.find(" Version:"); label != std::string::npos)
    line.erase(label, std::string_view(" Version:").size());
  std::replace(line.begin(), line.end(), '\t', ' ');
  const auto v = line.find(" v");
  if (v != std::string::npos && v + 2 < line.size() && std::isdigit(static_cast<unsigned char>(line[v + 2])) != 0) {
    line.erase(v + 1, 1);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string_view thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

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
