// The progress thread: advances asynchronous operations while the program computes.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/core/waiter.h"

namespace farandole {

/// Something that can be moved on by any thread.
class Progressable {
 public:
  virtual ~Progressable() = default;
  enum class State { kIdle, kWaiting, kMoved };
  /// Moves on without blocking. kIdle: nothing is pending. Never throws.
  virtual State advance() = 0;
  /// Looks for faults, late ranks and deadlines. Called now and then while waiting. Never throws.
  virtual void look_around() = 0;
  /// The job ends: waits until nothing is pending, and lets go of what belongs to the job. Never throws.
  virtual void close() {}
};

/// One thread per process that advances everything attached to it. Started by the first `wake`.
///
/// Where every core has a rank that computes (`crowded`), a busy progress thread would take from them what it hides. It
/// then only looks every few milliseconds, so that nothing stands still, and operations advance inside calls.
class ProgressThread {
 public:
  /// @param doorbell  what the thread sleeps on while it waits for others; other processes may nudge it
  ProgressThread(Waiter::Options options, Doorbell& doorbell) : options_(options), doorbell_(doorbell) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Adds `work`, which is dropped when its owner lets go of it.
  void attach(std::weak_ptr<Progressable> work);
  /// Tells the thread that there is something to advance.
  void wake();
  /// A message has moved.
  void notify() {
    if (!options_.crowded) doorbell_.ring();
  }

 private:
  void run(const std::stop_token& stop);

  const Waiter::Options options_;
  Doorbell& doorbell_;
  Doorbell own_;      // for sleep that news of other ranks do not end
  std::mutex mutex_;  // guards attached_ and thread_
  std::vector<std::weak_ptr<Progressable>> attached_;
  std::jthread thread_;
};

}  // namespace farandole
