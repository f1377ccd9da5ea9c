// SPDX-License-Identifier: Apache-2.0
// The thread of a device, which makes all calls that may block in the vendor's library.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "farandole/core/error.h"

namespace farandole {

/// A job of a device's thread. The thread sets `done_` last; its release pairs with the acquire in `is_done`.
class DeviceJob {
 public:
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Rethrows the job's error, if there is one. Call it once the job is done. @throws Error  thrown by the job's work
  void check() const {
    if (failure_) throw_error(failure_->kind(), failure_->message());
  }

 private:
  friend class DeviceThread;
  std::function<void()> prepare_, work_;
  std::optional<Error> failure_;
  std::atomic<bool> done_{false};
};

/// Runs jobs on a thread, in the order in which they were queued. Thread-safe.
///
/// The vendor's calls may block forever. So after a fault `abandon` leaves the thread inside such a call. All data that
/// the call uses must stay valid: jobs share ownership of their data.
class DeviceThread {
 public:
  /// @param ring  called on the thread after each job, to wake threads that wait for the job   @throws Unsupported  the
  /// system refuses another thread
  explicit DeviceThread(std::function<void()> ring);
  /// Blocks until all queued jobs are done, unless `abandon` was called.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// Queues a job. `work` must own or outlive all data that it uses.
  std::shared_ptr<const DeviceJob> run(std::function<void()> work) { return run({}, std::move(work)); }
  /// Queues a job of two parts. `prepare` allocates memory, and may block until a fault. If the thread is abandoned
  /// meanwhile, `work` does not run: it would enqueue accesses to the call's buffers, which the program may have freed
  /// by then.
  std::shared_ptr<const DeviceJob> run(std::function<void()> prepare, std::function<void()> work);
  /// Queues a job, and blocks until it is done.
  /// @param check  called every few milliseconds meanwhile. Its exceptions are passed on; `work` may still run then, so
  /// `work` must own all data that it uses
  /// @throws Error  thrown by `work`
  void run_now(std::function<void()> work, const std::function<void()>& check);
  /// Drops queued jobs, and lets the destructor detach the thread instead of waiting for the running job.
  void abandon();

 private:
  struct Shared;
  static void work(Shared& shared);
  const std::shared_ptr<Shared> shared_;  // shared with the thread
};

}  // namespace farandole
