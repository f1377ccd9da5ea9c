// SPDX-License-Identifier: Apache-2.0
// A thread that polls objects periodically, even while the program's threads are blocked on a device.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/internal/deadline.h"

namespace farandole {

/// An object that a WatchThread polls.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Called periodically on the thread of the WatchThread. Never throws.
  virtual void tick(Clock::time_point now) = 0;
  /// True if the next tick should come after 10 ms instead of 100 ms. Called after each tick.
  virtual bool is_active() const = 0;
  /// True while a device has work that this object watches. Thread-safe.
  virtual bool has_running() const = 0;
};

/// Calls `tick` of each added object every 10 ms while any of them is active, otherwise every 100 ms. Thread-safe.
class WatchThread {
 public:
  WatchThread() = default;
  WatchThread(const WatchThread&) = delete;
  WatchThread& operator=(const WatchThread&) = delete;
  ~WatchThread();
  /// Starts the thread if necessary. @throws Unsupported  the system refuses another thread
  void add(std::shared_ptr<Watched> watched);
  /// Removes `watched`. Blocks while a tick runs, so that no tick of `watched` runs afterwards. No-op if it was not
  /// added.
  void remove(const Watched& watched);
  /// True if `has_running` of any added object is true.
  bool has_running() const;

 private:
  void run(const std::stop_token& stop);

  mutable std::mutex mutex_;             // guards watched_; held during ticks
  std::condition_variable_any changed_;  // never notified: only a stop request ends the wait early
  std::vector<std::shared_ptr<Watched>> watched_;
  std::jthread thread_;
};

}  // namespace farandole
