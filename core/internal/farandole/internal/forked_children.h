// SPDX-License-Identifier: Apache-2.0
// What a forked child does with things of its parent. It has one thread and a copy of all memory: mutexes that another
// thread of the parent held at the fork stay locked in it for ever, and what such a thread was changing stays as it
// was.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"

namespace farandole {

/// From now on the mutex is held at each fork, so that the child finds it free, and whole what it guards. For mutexes
/// that are held for moments only, and never across a call that may lock something else: forks wait for them.
template <std::mutex& (*mutex)()>
void hold_at_forks() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

/// A mutex that a fork holds if it can, so that the child finds whole what it guards. For the `hold` and `release` of
/// ForkedChildren. Thread-safe.
class ForkMutex {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  /// Before a fork. A thread that has it for longer waits for something, which may be what the thread that forks holds.
  void hold() {
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(100));
    do {
      is_held_ = mutex_.try_lock();
      if (!is_held_) std::this_thread::yield();
    } while (!is_held_ && !deadline.passed());
  }
  /// After it, in the parent or the child. False: another thread had it at the fork.
  bool release() {
    if (!is_held_) return false;
    is_held_ = false;
    mutex_.unlock();
    return true;
  }

 private:
  std::mutex mutex_;
  bool is_held_ = false;  // by a fork; only the thread that forks uses it, of which there is one at a time
};

template <class Thing>
void do_nothing(Thing&) {}

/// State that all threads of this process share, with its mutex. The mutex is held at each fork, so that the child
/// finds the state whole and the mutex free; `in_child(state)` runs there before anything else can, as `before(state)`
/// and `in_parent(state)` do around the fork in the parent.
template <class State, void (*in_child)(State&), void (*before)(State&) = do_nothing<State>,
          void (*in_parent)(State&) = do_nothing<State>>
class ProcessState {
  struct Guarded {
    std::mutex mutex;
    State state;
  };

 public:
  /// Holds the state's mutex as long as it lives: for moments, as in hold_at_forks.
  class Access {
   public:
    explicit Access(Guarded& guarded) : lock_(guarded.mutex), state_(guarded.state) {}
    State* operator->() { return &state_; }
    State& operator*() { return state_; }

   private:
    std::lock_guard<std::mutex> lock_;
    State& state_;
  };
  static Access access() { return Access(guarded()); }

 private:
  static Guarded& guarded() {
    // Never destroyed: a fork may come at any time.
    static Guarded* const instance = [] {
      pthread_atfork(
          [] {
            guarded().mutex.lock();
            before(guarded().state);
          },
          [] {
            in_parent(guarded().state);
            guarded().mutex.unlock();
          },
          [] {
            in_child(guarded().state);
            guarded().mutex.unlock();
          });
      return new Guarded;
    }();
    return *instance;
  }
};

/// Things of this process of which a forked child must let go: `let_go(thing)` runs in the child for each that is
/// registered at the fork. Around the fork the parent holds each by `hold(thing)`, which must not wait for long, and
/// `release(thing)`. Thread-safe.
template <class Thing, void (*let_go)(Thing&), void (*hold)(Thing&) = do_nothing<Thing>,
          void (*release)(Thing&) = do_nothing<Thing>>
class ForkedChildren {
 public:
  static void add(Thing* thing) { Registry::access()->push_back(thing); }
  static void remove(Thing* thing) { std::erase(*Registry::access(), thing); }

 private:
  using Things = std::vector<Thing*>;
  template <void (*act)(Thing&)>
  static void for_all(Things& things) {
    for (Thing* const thing : things) act(*thing);
  }
  using Registry = ProcessState<Things, for_all<let_go>, for_all<hold>, for_all<release>>;
};

/// For a forked child: what its parent was using, and what therefore can not be taken apart here, stays as it is until
/// the process ends. Thread-safe.
template <class Thing>
void keep_until_the_end(Thing&& thing) {
  struct Kept {
    std::decay_t<Thing> thing;
    Kept* next;
  };
  static std::atomic<Kept*> all{nullptr};  // for leak checkers: it can be reached
  auto* const kept = new Kept{std::forward<Thing>(thing), all.load(std::memory_order_relaxed)};
  while (!all.compare_exchange_weak(kept->next, kept, std::memory_order_release)) {
  }
}

}  // namespace farandole
