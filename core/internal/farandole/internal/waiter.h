// SPDX-License-Identifier: Apache-2.0
// How a thread waits: pause, then yield, then sleep on a doorbell that local peers ring.
#pragma once

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// A futex that sleepers wait on; may lie in memory that processes share.
class Doorbell {
 public:
  /// The current ring count; pass it to `sleep` so that a ring in between is not missed.
  std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Wakes every sleeper. Costs one atomic increment while no thread sleeps.
  void ring();
  /// The same for a caller that has made a sequentially consistent store: wakes sleepers that had not seen it when they
  /// armed. Costs one load while no thread is armed.
  void nudge() {
    if (sleepers_.load(std::memory_order_seq_cst) > 0) ring();
  }
  /// To be called before the last look for what comes with `nudge`; `disarm` afterwards.
  void arm() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void disarm() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Sleeps until rung since `seen`, or until `limit` has passed.
  void sleep(std::uint32_t seen, std::chrono::microseconds limit);

 private:
  std::atomic<std::uint32_t> rings_{0};  // pairs with sleepers_: each side writes its own, then reads the other's
  std::atomic<std::uint32_t> sleepers_{0};
};

/// The waiting ladder of one waiting thread. Call `rest` while nothing happens and `reset` when something did.
/// Owned by one thread; not thread-safe.
class Waiter {
 public:
  struct Options {
    /// More ranks than cores: starts at yield, and sleeps soon, so that a blocked rank does not slow its peers.
    bool oversubscribed = false;
    /// A polled transport (MPI) is in use: sleeps are capped at 50 µs, doubling to 5 ms when idle.
    bool polled = false;
  };
  Waiter(Doorbell& doorbell, Options options) : doorbell_(doorbell), options_(options) {}
  ~Waiter() { disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  /// Back to the first rung.
  void reset();
  /// Marks the moment before the caller looks for work; a ring after it ends the next sleep at once.
  void look();
  /// True if `rest` would sleep.
  bool sleeps_next() const;
  /// One rung: pauses, yields or sleeps. True once it has reached the sleeping rung, where slow checks belong.
  bool rest();

 private:
  int pauses() const;
  int turns_awake() const;
  void disarm();

  Doorbell& doorbell_;
  Options options_;
  bool armed_ = false;
  std::uint32_t seen_ = 0;
  int turns_ = 0;
  std::chrono::microseconds sleep_{50};
};

/// Cores that a process may run on, as a set of numbers.
using CoreSet = std::bitset<1024>;
/// This process's (its affinity mask).
CoreSet allowed_cores();

}  // namespace FARANDOLE_API
