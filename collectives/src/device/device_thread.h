// SPDX-License-Identifier: Apache-2.0
// The thread of a device: everything that may block in the vendor's library is done there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "farandole/core/error.h"

namespace farandole {

/// One piece of work of a device's thread. `is_done` is set last: its release pairs with the acquire of the thread that
/// asks.
class DeviceJob {
 public:
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// @throws Error  what the work has thrown
  void check() const {
    if (failure_) throw_error(failure_->kind(), failure_->what());
  }

 private:
  friend class DeviceThread;
  std::function<void()> prepare_, work_;
  std::optional<Error> failure_;
  std::atomic<bool> done_{false};
};

/// Runs work in the order in which it was given. Thread-safe.
///
/// The vendor's calls may block for ever: after a fault the thread is left behind in such a call, and nothing that it
/// uses goes away.
class DeviceThread {
 public:
  /// @param ring  called after each piece of work, on the thread  @throws Unsupported  there can be no more threads
  explicit DeviceThread(std::function<void()> ring);
  /// Waits for what was given; after `leave_behind` not.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// What `work` refers to stays until it is done.
  std::shared_ptr<const DeviceJob> run(std::function<void()> work) { return run({}, std::move(work)); }
  /// The same for work that `prepare` comes before, which may block until a fault: gets memory. If the thread is left
  /// behind meanwhile, `work` is dropped: the memory of the call, which it would enqueue, is its owner's again.
  std::shared_ptr<const DeviceJob> run(std::function<void()> prepare, std::function<void()> work);
  /// Runs it, and blocks until it has ended. @param check  called every few milliseconds meanwhile; if it throws, that
  /// is passed on, and the work may still run: it owns what it refers to   @throws Error  what the work has thrown
  void run_now(std::function<void()> work, const std::function<void()>& check);
  /// What has not begun is dropped, and what runs is not waited for.
  void leave_behind();

 private:
  struct Shared;
  static void work(Shared& shared);
  const std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace farandole
