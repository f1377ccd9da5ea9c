// SPDX-License-Identifier: Apache-2.0
// The progress thread: advances asynchronous operations while the program computes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/internal/waiter.h"

namespace farandole {

/// Work that any thread can advance, such as the queue of a communicator.
class Progressable {
 public:
  virtual ~Progressable() = default;
  enum class State {
    kIdle,     ///< nothing is pending
    kWaiting,  ///< operations are pending, and none could advance
    kMoved,    ///< an operation has advanced
  };
  /// Advances pending operations. Non-blocking. Never throws.
  virtual State advance() = 0;
  /// Checks for faults, late ranks and deadlines. Called now and then while a thread waits. Never throws.
  virtual void poll_health() = 0;
  /// Called when the job ends: waits until nothing is pending, and releases what belongs to the job. Never throws.
  virtual void close() {}
};

/// Keeps the progress thread out of the vendor's library while no operation is pending, if the library may be called by
/// one thread at a time (MPI_THREAD_SERIALIZED): the program may then call the library. A gate with `guards` false lets
/// the thread in always, and costs nothing. Thread-safe.
///
/// A thread that ends the last operation writes `pending_` and then reads `is_inside_`; the progress thread writes
/// `is_inside_` and then reads `pending_`. So either the thread that ends the operation sees the progress thread inside
/// and waits, or the progress thread sees that nothing is pending.
class ProgressGate {
 public:
  explicit ProgressGate(bool guards) : guards_(guards) {}

  /// Call when an operation begins that the progress thread may advance.
  void begin() {
    if (guards_) pending_.fetch_add(1, std::memory_order_seq_cst);
  }
  /// Call when the operation has ended, before its owner is notified. The owner then checks `is_quiet`.
  void end() {
    if (guards_) pending_.fetch_sub(1, std::memory_order_seq_cst);
  }
  /// False while nothing is pending and the progress thread is still inside the library.
  bool is_quiet() const {
    return !guards_ || pending_.load(std::memory_order_seq_cst) > 0 || !is_inside_.load(std::memory_order_seq_cst);
  }
  /// Returns soon, because the progress thread never blocks inside the library.
  void wait_until_quiet() const {
    while (!is_quiet()) std::this_thread::yield();
  }

  /// Scope of one pass of the progress thread. The thread may advance work only if the Passage converts to true.
  class Passage {
   public:
    explicit Passage(ProgressGate& gate) : gate_(gate) {
      if (!gate_.guards_) return;
      gate_.is_inside_.store(true, std::memory_order_seq_cst);
      is_open_ = gate_.pending_.load(std::memory_order_seq_cst) > 0;
    }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;
    ~Passage() {
      if (gate_.guards_) gate_.is_inside_.store(false, std::memory_order_seq_cst);
    }
    explicit operator bool() const { return is_open_; }

   private:
    ProgressGate& gate_;
    bool is_open_ = true;
  };

 private:
  const bool guards_;
  std::atomic<int> pending_{0};
  std::atomic<bool> is_inside_{false};
};

/// The thread, one per process, that advances all attached work. The first `wake` starts the thread.
///
/// If every core has a rank that computes (`oversubscribed`), a busy progress thread would cost more than it hides. The
/// thread then advances work only every few milliseconds, as a safety net, and operations advance inside calls.
class ProgressThread {
 public:
  /// @param doorbell  the thread sleeps on it while waiting for peers; other processes may nudge the doorbell
  /// @param rests  true: the thread works only while operations are pending, see ProgressGate
  ProgressThread(Waiter::Options options, Doorbell& doorbell, bool rests = false)
      : options_(options), doorbell_(doorbell), gate_(rests) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Adds `work` until its owner releases it.
  void attach(std::weak_ptr<Progressable> work);
  /// Tells the thread that there is work to advance; starts the thread if necessary. If the system refuses a thread,
  /// logs one warning, and work advances inside calls only.
  void wake();
  /// True once the thread has started.
  bool is_running() const { return is_running_.load(std::memory_order_relaxed); }
  ProgressGate& gate() { return gate_; }
  /// Wakes the thread because a message has made progress; no-op if oversubscribed.
  void notify() {
    if (!options_.oversubscribed) doorbell_.ring();
  }

 private:
  using WorkList = std::vector<std::shared_ptr<Progressable>>;
  void start();
  void run(const std::stop_token& stop);
  void take_attached(WorkList& works);
  Progressable::State advance(const WorkList& works);
  void poll_health(const WorkList& works);

  const Waiter::Options options_;
  Doorbell& doorbell_;
  ProgressGate gate_;
  Doorbell own_;                         // for idle sleep: messages of peers do not wake the sleeper
  std::atomic<bool> is_running_{false};  // relaxed: guards no other memory
  std::mutex mutex_;                     // guards the members below
  std::vector<std::weak_ptr<Progressable>> attached_;
  bool is_refused_ = false;
  std::jthread thread_;
};

}  // namespace farandole
