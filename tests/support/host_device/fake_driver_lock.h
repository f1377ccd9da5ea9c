// SPDX-License-Identifier: Apache-2.0
// The driver's lock: calls of one process meet there, whatever device they are for.
#pragma once

namespace farandole::fake {

/// Held by a call of the driver from its beginning to its end, or until `unlock`. A call that waits for a device in the
/// meantime, as cuMemFree does, makes all other threads of the process wait, too. Threads of streams never take it.
/// Relaxed atomics: it orders no two threads, so that the thread sanitizer still sees each missing order.
class DriverLock {
 public:
  /// @param locks  false: a call that does without
  explicit DriverLock(bool locks);
  ~DriverLock() { unlock(); }
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
  /// Before the call waits for what other threads may have to enqueue.
  void unlock();

 private:
  bool is_locked_ = false;
};

/// While it lives, the calling thread counts as one that waits in the driver.
class DriverWait {
 public:
  DriverWait();
  ~DriverWait();
  DriverWait(const DriverWait&) = delete;
  DriverWait& operator=(const DriverWait&) = delete;
};

}  // namespace farandole::fake
