// SPDX-License-Identifier: Apache-2.0
// How a program reports its failure, and its exit status.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/collectives/communicator.h"

namespace farandole::tools {

inline constexpr int kExitDone = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;

/// Prints why this process fails, exactly once, before any rank of the job can end because of the failure.
///
/// A launcher ends all ranks as soon as one rank ends with a status other than 0, even a rank that is about to print
/// the reason. So a rank prints while it is still in the job, before the other ranks learn of its failure. If the
/// library raises an error on several ranks, none of these ranks ends before each of them, or the rank that caused the
/// error, has printed. A rank waits for other ranks only inside collectives, which end when a peer dies or fails.
///
///     int main(int argc, char** argv) {
///       ErrorReport errors("farandole-example");
///       return errors.exit_status([&] {
///         World world;
///         return errors.print_errors_of([&] { return run_in(world); });
///       });
///     }
class ErrorReport {
 public:
  /// Returns the text to print for an exception. `rank` is the throwing rank, if known.
  using Describe = std::function<std::string(const std::exception&, std::optional<int> rank)>;
  /// @param program  name of the program   @param describe  null: the text is the exception's own
  explicit ErrorReport(std::string program, Describe describe = {});

  /// Prints "PROGRAM: TEXT" on standard error. Later calls are no-ops, because later errors of the process follow from
  /// the first. Returns after the first error is printed, also if another thread prints it. Thread-safe.
  void print(std::string_view text);

  /// Runs a part of the program; prints an exception of the part and rethrows it. Use it for everything inside a job.
  template <class Part>
  auto print_errors_of(const Part& part) {
    try {
      return part();
    } catch (const std::exception& error) {
      print(describe_(error, std::nullopt));
      throw;
    }
  }
  /// Does the same for the work of one rank, inside the function that `run_replicas` calls. After a Mismatch the rank
  /// waits until its peers have printed their errors: each peer raises a Mismatch too, or has caused it.
  void print_errors_of(Communicator& ranks, const std::function<void()>& part);

  /// Prints an error that all ranks know. The rank `origin` prints; if `origin` dies before it has printed, every peer
  /// prints. Collective over `ranks`; blocks until the error is printed.
  /// @throws PeerLost, Timeout, TransportError  the job is poisoned; this process has printed the error
  void print_of_all(Communicator& ranks, int origin, std::string_view text);

  /// Runs the whole program. Returns the result of `body`; if `body` throws, prints the exception and returns its exit
  /// status.
  int exit_status(const std::function<int()>& body);

 private:
  const std::string program_;
  const Describe describe_;
  std::mutex mutex_;
  bool has_printed_ = false;  // guarded by mutex_
};

}  // namespace farandole::tools
