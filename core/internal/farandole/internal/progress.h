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

/// Something that can be moved on by any thread.
class Progressable {
 public:
  virtual ~Progressable() = default;
  enum class State { kIdle, kWaiting, kMoved };
  /// Moves on without blocking. kIdle: nothing is pending. Never throws.
  virtual State advance() = 0;
  /// Looks for faults, late ranks and deadlines. Called now and then while waiting. Never throws.
  virtual void poll_health() = 0;
  /// The job ends: waits until nothing is pending, and lets go of what belongs to the job. Never throws.
  virtual void close() {}
};

/// Keeps the progress thread from working while nothing is pending, where the program may then call a library that only
/// one thread at a time may call. Where it does not guard it costs nothing. Thread-safe.
///
/// A thread that ends the last operation writes `pending_` and then reads `is_inside_`; the progress thread does the
/// opposite. So either that thread sees it inside and waits, or it sees that there is nothing to do.
class ProgressGate {
 public:
  explicit ProgressGate(bool guards) : guards_(guards) {}

  /// An operation begins that the progress thread may advance.
  void begin() {
    if (guards_) pending_.fetch_add(1, std::memory_order_seq_cst);
  }
  /// It has ended. Before its owner is notified, which then looks whether it `is_quiet`.
  void end() {
    if (guards_) pending_.fetch_sub(1, std::memory_order_seq_cst);
  }
  /// False while nothing is pending and the progress thread is still at work.
  bool is_quiet() const {
    return !guards_ || pending_.load(std::memory_order_seq_cst) > 0 || !is_inside_.load(std::memory_order_seq_cst);
  }
  /// Returns soon: what the progress thread does never blocks.
  void wait_until_quiet() const {
    while (!is_quiet()) std::this_thread::yield();
  }

  /// The progress thread's way through: while it lives, and is true, the thread may work.
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

/// One thread per process that advances everything attached to it. Started by the first `wake`.
///
/// Where every core has a rank that computes (`oversubscribed`), a busy progress thread would take from them what it
/// hides. It then only looks every few milliseconds, so that nothing stands still, and operations advance inside calls.
class ProgressThread {
 public:
  /// @param doorbell  what the thread sleeps on while it waits for peers; other processes may nudge it
  /// @param rests  it works only while operations are pending, see ProgressGate
  ProgressThread(Waiter::Options options, Doorbell& doorbell, bool rests = false)
      : options_(options), doorbell_(doorbell), gate_(rests) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Adds `work`, which is dropped when its owner lets go of it.
  void attach(std::weak_ptr<Progressable> work);
  /// Tells the thread that there is something to advance. If the system refuses a thread, a warning says so once, and
  /// what is attached advances inside calls only.
  void wake();
  /// True once the thread has started.
  bool is_running() const { return is_running_.load(std::memory_order_relaxed); }
  ProgressGate& gate() { return gate_; }
  /// A message has moved.
  void notify() {
    if (!options_.oversubscribed) doorbell_.ring();
  }

 private:
  using Works = std::vector<std::shared_ptr<Progressable>>;
  void start();
  void run(const std::stop_token& stop);
  void take_attached(Works& works);
  Progressable::State advance(const Works& works);
  void poll_health(const Works& works);

  const Waiter::Options options_;
  Doorbell& doorbell_;
  ProgressGate gate_;
  Doorbell own_;                         // for sleep that news of other ranks do not end
  std::atomic<bool> is_running_{false};  // orders nothing
  std::mutex mutex_;                     // guards what follows
  std::vector<std::weak_ptr<Progressable>> attached_;
  bool is_refused_ = false;
  std::jthread thread_;
};

}  // namespace farandole
