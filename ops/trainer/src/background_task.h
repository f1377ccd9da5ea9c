// SPDX-License-Identifier: Apache-2.0
// Work on a thread beside the thread that asks for it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/library_thread.h"

namespace farandole::trainer {

/// Runs one function at a time on a thread of its own, which blocks signals:
///
///     BackgroundTask task;
///     task.start([&] { write(values); });
///     …                                    // the caller leaves `values` alone
///     task.wait();                         // throws what `write` has thrown
///
/// The destructor waits, and drops an exception. In a child that the caller has forked, the destructor leaves the
/// thread, which the child does not have, alone. All functions are called by one thread.
class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask() {
    if (thread_.joinable() && owner_ != getpid()) thread_.detach();
  }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Starts `work`. If the system refuses a thread, runs `work` before it returns. @pre  nothing was started, or `wait`
  /// was called since
  void start(std::function<void()> work) {
    owner_ = getpid();
    has_ended_.store(false, std::memory_order_relaxed);
    const auto run = [this, work = std::move(work)] {
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
      has_ended_.store(true, std::memory_order_release);
    };
    try {
      thread_ = start_library_thread(run);
    } catch (const std::system_error&) {
      run();
    }
  }

  /// True if the work has ended, whether or not it has thrown. Non-blocking.
  bool has_ended() const { return has_ended_.load(std::memory_order_acquire); }

  /// Blocks until the work has ended. @throws  what the work threw   @throws InvalidArgument  in a forked child
  void wait() {
    if (thread_.joinable()) {
      if (owner_ != getpid())
        throw InvalidArgument("this process was forked from a process that writes, and has no thread for it");
      thread_.join();
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::exception_ptr error_;  // of the thread until it is joined
  std::atomic<bool> has_ended_{true};
  pid_t owner_ = 0;      // process that started the thread
  std::jthread thread_;  // last, so that it is joined first
};

}  // namespace farandole::trainer
