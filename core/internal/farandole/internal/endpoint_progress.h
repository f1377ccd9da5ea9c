// SPDX-License-Identifier: Apache-2.0
// Waiting and progress of a rank: its doorbell, the work that threads advance, and who may call the vendor's library.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/internal/progress.h"
#include "farandole/internal/waiter.h"

namespace farandole FARANDOLE_API {

class Job;

/// Waiting and progress of one rank, reached as `endpoint.progress()`. A thread that waits for a collective sleeps on
/// the rank's doorbell and advances the attached work; while the program computes, the progress thread advances the
/// work. Thread-safe.
class EndpointProgress {
 public:
  EndpointProgress(Job& job, Doorbell& doorbell) : job_(job), doorbell_(doorbell) {}

  // Waiting.
  Doorbell& doorbell() { return doorbell_; }
  /// Wakes the threads that wait for this rank: the rank's own threads and the progress thread.
  void ring();
  /// Options of a Waiter that waits on the doorbell.
  Waiter::Options waiting() const;
  /// Limits sleeps of waiting threads to 50 µs from now on, because completion on a device is seen by polling only.
  void set_polled() { is_polled_.store(true, std::memory_order_relaxed); }

  // Attached work.
  /// Adds work until its owner releases it. The progress thread advances the work, and so does every call that waits.
  /// If the vendor allows only the main thread, only such calls advance the work.
  void attach(const std::weak_ptr<Progressable>& work);
  /// Advances all work of this rank. No-op if the only work is the caller's.
  void advance_attached();
  /// Closes all work of this rank, because the World ends.
  void close_attached();

  // The progress thread.
  /// False if the vendor allows only the main thread; then there is no progress thread.
  bool usable_from_any_thread() const;
  /// Tells the progress thread, if there is one, that there is work to advance.
  void wake();
  /// True once the progress thread runs. It checks the health of all pending work at least every 100 ms.
  bool is_running() const;

  // The vendor's library, if one thread at a time may call it (MPI_THREAD_SERIALIZED): see ProgressGate.
  /// Call when an asynchronous operation begins that the progress thread may advance.
  void begin_operation();
  /// Call when such an operation has ended, before its owner is notified.
  void end_operation();
  /// False while nothing is pending and the progress thread is still inside the library. The owner of an operation is
  /// notified of its end only once this is true, because the program may then call MPI.
  bool is_quiet() const;
  /// Waits until `is_quiet`, which is soon.
  void wait_until_quiet() const;
  /// True if one thread at a time may call the vendor's library, and the program's threads may be among the callers.
  bool shares_vendor_with_program() const;

 private:
  /// Locks all attached work that still exists; returns nothing if fewer than `at_least` items are attached.
  std::vector<std::shared_ptr<Progressable>> attached(std::size_t at_least);

  Job& job_;
  Doorbell& doorbell_;
  std::atomic<bool> is_polled_{false};  // orders nothing
  std::mutex attached_mutex_;
  std::vector<std::weak_ptr<Progressable>> attached_;  // guarded by attached_mutex_
};

}  // namespace FARANDOLE_API
