// SPDX-License-Identifier: Apache-2.0
// The driver's lock, which all driver calls of a process share, for whatever device.
#pragma once

namespace farandole::fake {

/// A driver call holds the lock from its beginning to its end, or until `unlock`. If the call waits for a device, as
/// cuMemFree does, all other threads of the process wait, too. Threads of streams never take the lock. It uses relaxed
/// atomics and orders no two threads, so that the thread sanitizer still sees each missing order.
class DriverLock {
 public:
  /// @param locks  false for calls that need no lock
  explicit DriverLock(bool locks);
  ~DriverLock() { unlock(); }
  DriverLock(const DriverLock&) = delete;
  DriverLock& operator=(const DriverLock&) = delete;
  /// Releases the lock. Call it before a wait for work that other threads may still have to enqueue.
  void unlock();

 private:
  bool is_locked_ = false;
};

/// While the object lives, the calling thread counts as waiting in the driver (fake_device_waits_in_driver).
class DriverWait {
 public:
  DriverWait();
  ~DriverWait();
  DriverWait(const DriverWait&) = delete;
  DriverWait& operator=(const DriverWait&) = delete;
};

}  // namespace farandole::fake
