// SPDX-License-Identifier: Apache-2.0
#include "mpi_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/library_thread.h"
#include "farandole/internal/log.h"
#include "farandole/internal/stall_monitor.h"

namespace farandole::mpi {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};

}  // namespace

Watch::Watch(const Times& times) {
  try {
    thread_ = start_library_thread(run, times);
  } catch (const std::system_error& error) {
    log(LogLevel::kWarning,
        fmt::format("the thread that watches over joining the job cannot be started ({}): a process "
                    "that does not come is waited for in silence",
                    error.code().message()));
  }
}

void Watch::run(const std::stop_token& stop, const Times& times) {
  StallMonitor stall(times.warn_after, times.timeout);
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  try {
    while (!stopped.wait_for(lock, stop, kPollInterval, [&] { return stop.stop_requested(); })) {
      stall.check([&] {
        return fmt::format(
            "joining the job: waiting for {:.1f} s until MPI has brought all processes together, and MPI does not say "
            "which of them is missing; every process that the launcher has started must create a farandole::World "
            "(farandole.init() in Python), and none may be stopped",
            stall.waited().count());
      });
    }
  } catch (const Timeout& error) {
    log(LogLevel::kError, error.message());
    std::_Exit(1);
  }
}

}  // namespace farandole::mpi
