// SPDX-License-Identifier: Apache-2.0
// Faults of the job as one rank sees and reports them.
#pragma once

#include <string>
#include <string_view>

#include "farandole/core/error.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

class Job;

/// Faults of a rank's job, reached as `endpoint.faults()`. The first fault poisons the job: every rank raises it from
/// then on. Thread-safe.
class EndpointFaults {
 public:
  EndpointFaults(Job& job, int rank) : job_(job), rank_(rank) {}

  /// Returns if calls may go on. Costs one load while there is no fault.
  /// @throws Error  the job's fault   @throws InvalidArgument  the World has ended, or as check_process
  void check() const;
  /// @throws InvalidArgument  the World has ended, or as check_process. For functions that work despite a fault.
  void check_world() const;
  /// @throws InvalidArgument  this process was forked from the rank's process
  void check_process() const;
  /// True in a process that was forked from the rank's process. Such a process must neither use nor destroy anything of
  /// the rank.
  bool is_forked_child() const;
  /// True if `check` would throw. Sequentially consistent with `poison`.
  bool exist() const;

  /// Poisons the job on all ranks. The first caller's fault counts. Returns once the flight records are written and the
  /// fault can be raised; waits for no other rank.
  void poison(ErrorKind kind, const std::string& text);
  /// Poisons the job with a PeerLost of this rank, which takes no further part. @param how  "failed with an exception"
  void give_up(std::string_view how);
  /// Reads control messages, and checks whether local peers are alive; poisons the job if a peer has died. For slow
  /// paths. Non-blocking.
  void poll();

 private:
  Job& job_;
  const int rank_;
};

}  // namespace FARANDOLE_API
