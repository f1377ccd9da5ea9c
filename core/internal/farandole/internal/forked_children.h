// SPDX-License-Identifier: Apache-2.0
// Fork safety. A forked child has one thread and a copy of the parent's memory. A mutex that another thread of the
// parent held at the fork stays locked in the child for ever, and state that such a thread was changing stays half
// changed.
//
// Which tool for which case:
//   hold_at_forks    a mutex held for moments only: fork waits for the mutex, so that the child finds it free
//   ForkMutex        a mutex that may be held for long: fork gives up after 100 ms, and tells the child
//   ProcessState     state shared by all threads of the process, with its mutex
//   FlagLock         a lock for long steps, in such state
//   ForkedChildren   objects that the child must detach from (sockets, jobs, …)
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/internal/deadline.h"

namespace farandole {

/// Makes every fork from now on lock the mutex, so that the child finds the mutex free and its data consistent. For
/// mutexes that are held for moments only, and never across a call that may lock another mutex: forks wait for them.
template <std::mutex& (*mutex)()>
void hold_at_forks() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

/// A mutex that a fork locks if the mutex becomes free within 100 ms, so that the child finds the guarded data
/// consistent. Pass `hold` and `release` to ForkedChildren. Thread-safe.
class ForkMutex {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  /// Called before a fork. Gives up after 100 ms: a thread that holds the mutex for longer is waiting, perhaps for a
  /// lock that the forking thread holds.
  void hold() {
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(100));
    do {
      is_held_ = mutex_.try_lock();
      if (!is_held_) std::this_thread::yield();
    } while (!is_held_ && !deadline.passed());
  }
  /// Called after the fork, in the parent or the child. Returns false if another thread held the mutex at the fork.
  bool release() {
    if (!is_held_) return false;
    is_held_ = false;
    mutex_.unlock();
    return true;
  }

 private:
  std::mutex mutex_;
  // Locked by `hold`. Only the forking thread accesses it, because ForkedChildren holds its registry's mutex during
  // each fork.
  bool is_held_ = false;
};

template <class Thing>
void do_nothing(Thing&) {}

/// State shared by all threads of the process, with its mutex. Each fork holds the mutex, so that the child finds the
/// state consistent and the mutex free. Around a fork three callbacks run with the mutex held: `before(state)` in the
/// parent, then `in_parent(state)` in the parent and `in_child(state)` in the child, before other code of the child.
template <class State, void (*in_child)(State&), void (*before)(State&) = do_nothing<State>,
          void (*in_parent)(State&) = do_nothing<State>>
class ProcessState {
  struct Guarded {
    std::mutex mutex;
    State state;
  };

 public:
  /// Access to the state; holds the mutex. Keep the Access for moments only, because forks wait for the mutex.
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

/// Lock for a step that may take long, such as joining a job: a flag of a ProcessState, so that threads that wait for
/// the lock do not hold the state's mutex, and forks need not wait. `in_child` resets the flag.
template <class State, auto flag>
class FlagLock {
 public:
  FlagLock() {
    while (std::exchange((*State::access()).*flag, true)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FlagLock(const FlagLock&) = delete;
  FlagLock& operator=(const FlagLock&) = delete;
  ~FlagLock() { (*State::access()).*flag = false; }
};

/// Registry of objects from which a forked child must detach: `let_go(object)` runs in the child for each object that
/// is registered at the fork. In the parent, `hold(object)` runs before the fork and `release(object)` after the fork
/// for each object; `hold` must not wait for long. Thread-safe.
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

/// Keeps an object until the process ends, without destroying it. For objects in a forked child that cannot be
/// destroyed there, because threads of the parent were using them at the fork. Thread-safe.
template <class Thing>
void keep_until_the_end(Thing&& thing) {
  struct Kept {
    std::decay_t<Thing> thing;
    Kept* next;
  };
  static std::atomic<Kept*> all{nullptr};  // keeps the objects reachable for leak checkers
  auto* const kept = new Kept{std::forward<Thing>(thing), all.load(std::memory_order_relaxed)};
  while (!all.compare_exchange_weak(kept->next, kept, std::memory_order_release)) {
  }
}

}  // namespace farandole
