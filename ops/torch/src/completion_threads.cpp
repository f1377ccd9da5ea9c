// SPDX-License-Identifier: Apache-2.0
#include "completion_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace farandole_torch {
namespace {

class CompletionThreads {
 public:
  void run(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ >= tasks_.size()) {
      is_task_.notify_one();
    } else {
      std::thread([this] { work(); }).detach();
    }
  }

 private:
  void work() {
    pthread_setname_np(pthread_self(), "fa_torch_done");
    std::unique_lock lock(mutex_);
    while (true) {
      while (tasks_.empty()) {
        ++idle_;
        is_task_.wait(lock);
        --idle_;
      }
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable is_task_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  size_t idle_ = 0;                          // threads that wait; guarded by mutex_
};

}  // namespace

void run_on_completion_thread(std::function<void()> task) {
  // Never destroyed: the threads end with the process.
  static auto* const threads = new CompletionThreads;
  threads->run(std::move(task));
}

}  // namespace farandole_torch
