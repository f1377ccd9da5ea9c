// SPDX-License-Identifier: Apache-2.0
// A thread that looks at things again and again, also while the program's threads wait for a device.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/internal/deadline.h"

namespace farandole {

/// Something that a WatchThread looks at.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Never throws.
  virtual void tick(Clock::time_point now) = 0;
  /// True if the next tick should come soon.
  virtual bool is_active() const = 0;
};

/// Calls `tick` of all its Watched every 10 ms while one of them is active, else every 100 ms, so that activity after a
/// pause is seen within 100 ms. Thread-safe.
class WatchThread {
 public:
  WatchThread() = default;
  WatchThread(const WatchThread&) = delete;
  WatchThread& operator=(const WatchThread&) = delete;
  ~WatchThread();
  /// Starts the thread if necessary. @throws Unsupported  the system refuses another thread
  void add(std::shared_ptr<Watched> watched);
  /// Blocks while a tick runs. No-op for an unknown one.
  void remove(const Watched& watched);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;                     // guards watched_; held during ticks
  std::condition_variable_any changed_;  // only for the request to stop
  std::vector<std::shared_ptr<Watched>> watched_;
  std::jthread thread_;
};

}  // namespace farandole
