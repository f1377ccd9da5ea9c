// SPDX-License-Identifier: Apache-2.0
// Warnings and deadline for MPI's blocking calls.
#pragma once

#include <stop_token>
#include <thread>

#include "farandole/core/settings.h"

namespace farandole::mpi {

/// Watches a blocking call of MPI during the bring-up. Such a call has no deadline and cannot be cancelled. Construct a
/// Watch before the call, and destroy the Watch afterwards. Meanwhile a separate thread, which does not call MPI, logs
/// a warning after FARANDOLE_WARN_AFTER and further warnings after pauses that double. After FARANDOLE_TIMEOUT the
/// thread logs an error and ends the process with status 1, so that the launcher ends the job.
class Watch {
 public:
  struct Times {
    Seconds warn_after{30};
    Seconds timeout{0};  ///< 0: never
  };
  explicit Watch(const Times& times);

 private:
  static void run(const std::stop_token& stop, const Times& times);
  std::jthread thread_;
};

}  // namespace farandole::mpi
