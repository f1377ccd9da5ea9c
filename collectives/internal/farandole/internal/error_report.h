// SPDX-License-Identifier: Apache-2.0
// How a program reports its failure, and with which status it exits. For Farandole's own programs; others use run_main.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/collectives/communicator.h"
#include "farandole/core/error.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;

/// Prints the error of this process exactly once, before any rank of the job can end because of the error.
///
/// A launcher kills all ranks as soon as one rank ends with a nonzero status, even a rank that is about to print the
/// reason. So a rank prints its error while it is still in the job, before the other ranks learn of its failure. If
/// several ranks raise the same error, they leave the job only after the rank that caused the error, or all of them,
/// have printed. A rank waits for other ranks only inside collectives, which end when a peer dies or fails.
///
///     int main(int argc, char** argv) {
///       ErrorReport errors("farandole-example");
///       return errors.exit_status([&] {
///         const Options options = errors.print_errors_of_command_line([&] { return options_of(argc, argv); });
///         World world;
///         return errors.print_errors_of([&] { return run_in(world, options); });
///       });
///     }
///
/// A line is "PROGRAM: KIND: TEXT", or "PROGRAM: KIND: rank 1: TEXT" in a job. An exception that is not an Error has
/// the kind Internal. The exit status is kExitUsage for an InvalidArgument, which a wrong option or setting causes, and
/// kExitError for every other kind.
class ErrorReport {
 public:
  /// @param program  name of the program
  explicit ErrorReport(std::string program);

  /// Prints the line of an error on standard error. Later calls are no-ops, because later errors of the process follow
  /// from the first error. Returns once the first error is printed, even if another thread prints it. Thread-safe.
  /// @param rank  the rank that raises the error; empty: the rank in the launcher's environment variables, if any
  void print(const std::exception& error, std::optional<int> rank = {});

  /// Runs a part of the program; prints an exception that the part throws, and rethrows it. Use it for everything
  /// inside a job.
  template <class Part>
  auto print_errors_of(const Part& part) {
    try {
      return part();
    } catch (const std::exception& error) {
      print(error);
      throw;
    }
  }
  /// Runs the part of the program that reads the command line, before the process joins a job. All ranks of a job raise
  /// the same error there. Rank 0 prints the error and ends; some launchers, Open MPI's for example, then end the other
  /// ranks. A rank that is still there after 3 s prints the error, too.
  template <class Part>
  auto print_errors_of_command_line(const Part& part) {
    try {
      return part();
    } catch (const std::exception& error) {
      wait_for_end_by_launcher();
      print(error);
      throw;
    }
  }
  /// Runs the work of one rank, inside the function that `run_replicas` calls, and prints an exception that the work
  /// throws. Returns kExitDone, or the exit status of an error that all ranks raise together (RaisedByAll): the job is
  /// intact then, and every rank shuts down cleanly. Rethrows every other error.
  /// An error that all ranks raise is printed once. The rank that caused a RaisedByAll prints it; if that rank dies
  /// before it has printed, every rank prints it. Rank 0 prints a Mismatch; each rank with the same text prints only
  /// that it has the same error. A rank returns after its peers have printed.
  int print_errors_of(Communicator& ranks, const std::function<void()>& part);

  /// Runs the whole program. Returns the result of `body`; if `body` throws, prints the exception and returns its exit
  /// status.
  int exit_status(const std::function<int()>& body);

 private:
  /// On ranks other than 0: waits for 3 s. Returns immediately on rank 0, and in a process without a launcher.
  static void wait_for_end_by_launcher();
  void print_line(std::string_view text);
  void print_mismatch(Communicator& ranks, const Mismatch& error);
  void print_of_all(Communicator& ranks, int origin, const std::exception& error);

  const std::string program_;
  std::mutex mutex_;
  bool has_printed_ = false;  // guarded by mutex_
};

}  // namespace FARANDOLE_API
