// SPDX-License-Identifier: Apache-2.0
// Waiting ladder of a thread: pause, then yield, then sleep on a doorbell that local peers ring.
#pragma once

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>

#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// A futex on which threads sleep; may lie in shared memory. No wake-up is lost if sleeper and waker follow this order:
///
///   sleeper:  arm();  seen = rings();  look for work;  if there is none: sleep(seen, limit);  disarm();
///   waker:    publish the work;  ring();     or, cheaper: publish by a seq_cst store;  nudge();
class Doorbell {
 public:
  /// Returns the number of rings so far; pass it to `sleep`, which then does not miss a ring in between.
  std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
  /// Wakes every sleeper. Costs one atomic increment if no thread sleeps.
  void ring();
  /// Rings only if a thread is armed. The caller has published its work by a sequentially consistent store, so that a
  /// thread that arms later sees the work. Costs one load if no thread is armed.
  void nudge() {
    if (sleepers_.load(std::memory_order_seq_cst) > 0) ring();
  }
  /// Call before the last look for work that is announced by `nudge`; call `disarm` after sleeping.
  void arm() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void disarm() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Sleeps until the next ring after `seen`, or until `limit` has passed.
  void sleep(std::uint32_t seen, std::chrono::microseconds limit);

 private:
  std::atomic<std::uint32_t> rings_{0};  // pairs with sleepers_: each side writes its own, then reads the other's
  std::atomic<std::uint32_t> sleepers_{0};
};

/// The waiting ladder of one waiting thread: pauses, yields, then sleeps for longer and longer. Call `rest` after each
/// look that found no work, and `reset` after each look that found some:
///
///   Waiter waiter(doorbell, options);
///   while (!is_done()) {
///     waiter.look();
///     advance() ? waiter.reset() : (void)waiter.rest();
///   }
///
/// Used by one thread; not thread-safe.
class Waiter {
 public:
  struct Options {
    /// There are more ranks than cores: start at yield and sleep soon, so that a waiting rank does not slow its peers.
    bool oversubscribed = false;
    /// A polled transport (MPI) is in use: sleeps last 50 µs for about 40 ms, and then double up to 5 ms. Without a
    /// polled transport, sleeps double from 50 µs up to 100 ms.
    bool polled = false;
  };
  Waiter(Doorbell& doorbell, Options options) : doorbell_(doorbell), options_(options) {}
  ~Waiter() { disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  /// Returns to the first rung of the ladder.
  void reset();
  /// Call before looking for work: a ring after this call ends the next sleep immediately.
  void look();
  /// True if `rest` would sleep.
  bool sleeps_next() const;
  /// Takes one step: pauses, yields or sleeps. Returns true once the ladder has reached sleeping; slow checks such as
  /// `poll_health` belong after such a step.
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

/// Set of core numbers.
using CoreSet = std::bitset<1024>;
/// Cores on which this process may run (its affinity mask).
CoreSet allowed_cores();

}  // namespace FARANDOLE_API
