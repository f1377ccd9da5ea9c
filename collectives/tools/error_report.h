// SPDX-License-Identifier: Apache-2.0
// How a program says why it fails, and with which status it ends.
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

/// Prints why this process fails, once, before any rank can end because of it.
///
/// Launchers end all ranks as soon as one ends with a status that is not 0, also one that is about to print the reason.
/// So a rank prints while it is in the job, before the other ranks are notified that it fails; an error that the
/// library raises on several ranks is printed by all of them, or by the one that has it, before any goes on to end.
/// Each wait for another rank is one of the library's, which ends when that rank dies or fails.
class ErrorReport {
 public:
  /// The words for an exception; `rank` is the one that throws it, as far as that is known.
  using Describe = std::function<std::string(const std::exception&, std::optional<int> rank)>;
  /// @param describe  null: the exception's own
  explicit ErrorReport(std::string program, Describe describe = {});

  /// Prints "PROGRAM: TEXT". Only the first time: what else goes wrong in this process follows from that. Returns when
  /// that is printed, whichever thread does it.
  void print(std::string_view text);

  /// Runs a part of the program; prints what it throws and throws that on. For all that is done inside of a job.
  template <class Part>
  auto print_errors_of(const Part& part) {
    try {
      return part();
    } catch (const std::exception& error) {
      print(describe_(error, std::nullopt));
      throw;
    }
  }
  /// The same for what a rank does with its peers, in the function that `run_replicas` calls. After a Mismatch it
  /// waits until its peers, which raise one too or have caused it, have printed theirs.
  void print_errors_of(Communicator& ranks, const std::function<void()>& part);

  /// An error that all ranks of `ranks` know: `origin` prints it, and where that rank dies before it has, all its
  /// peers. Collective; blocks until it is printed.
  /// @throws PeerLost, Timeout, TransportError  the job is poisoned; this process has printed the error
  void print_of_all(Communicator& ranks, int origin, std::string_view text);

  /// The program itself: what `body` returns, or, if it throws, the status of that, which then is printed.
  int exit_status(const std::function<int()>& body);

 private:
  const std::string program_;
  const Describe describe_;
  std::mutex mutex_;
  bool has_printed_ = false;  // guarded by mutex_
};

}  // namespace farandole::tools
