// SPDX-License-Identifier: Apache-2.0
#include "completion_threads.h"

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

namespace farandole_torch {
namespace {

/// Starts a thread that blocks all signals, so that the program's own threads receive them.
template <class Body>
void start(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(body)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Runs tasks in the order of their submission. Starts a thread if all are busy and there are fewer than the limit.
class TaskThreads {
 public:
  explicit TaskThreads(const char* name, size_t limit = std::numeric_limits<size_t>::max())
      : name_(name), limit_(limit) {}

  void run(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size() || started_ == limit_) {
      is_task_.notify_one();
    } else {
      ++started_;
      start([this] { work(); });
    }
  }

 private:
  void work() {
    pthread_setname_np(pthread_self(), name_);
    std::unique_lock lock(mutex_);
    while (true) {
      while (tasks_.empty()) {
        ++idle_;
        is_task_.wait(lock);
        --idle_;
      }
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds is destroyed without the lock
      lock.lock();
    }
  }

  const char* const name_;
  const size_t limit_;
  std::mutex mutex_;  // guards the following
  std::condition_variable is_task_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0, started_ = 0;
};

}  // namespace

// The threads end with the process, so their objects are never destroyed.

void run_on_completion_thread(std::function<void()> task) {
  static auto* const threads = new TaskThreads("farandole_done");
  threads->run(std::move(task));
}

void run_on_waiting_thread(std::function<void()> wait) {
  static auto* const thread = new TaskThreads("farandole_wait", 1);
  thread->run(std::move(wait));
}

}  // namespace farandole_torch
