// SPDX-License-Identifier: Apache-2.0
// Says that MPI waits.
#pragma once

#include <stop_token>
#include <thread>

#include "farandole/core/settings.h"

namespace farandole::mpi {

/// MPI's calls that wait for all processes know no deadline and can not be given up. While a Watch lives, a thread of
/// its own, which does not call MPI, warns after FARANDOLE_WARN_AFTER, again after twice the time, and so on. After
/// FARANDOLE_TIMEOUT it says so and ends the process with status 1, which the launcher notices.
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
