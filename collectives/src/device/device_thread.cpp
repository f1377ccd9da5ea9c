// SPDX-License-Identifier: Apache-2.0
#include "device/device_thread.h"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

#include "device/vendor_calls.h"
#include "farandole/internal/library_thread.h"

namespace farandole {

struct DeviceThread::Shared {
  std::function<void()> ring;
  std::mutex mutex;                 // guards the members below
  std::condition_variable changed;  // signalled when a job is queued, and by the destructor
  std::condition_variable ended;    // signalled when a job is done
  std::deque<std::shared_ptr<DeviceJob>> jobs;
  bool ends = false;
  bool is_abandoned = false;
  std::jthread thread;
};

DeviceThread::DeviceThread(std::function<void()> ring) : shared_(std::make_shared<Shared>()) {
  shared_->ring = std::move(ring);
  try {
    shared_->thread = start_library_thread([shared = shared_] { work(*shared); });
  } catch (const std::system_error& error) {
    throw Unsupported(fmt::format("the thread of a device cannot be started ({}); raise the limits on threads",
                                  error.code().message()));
  }
}

DeviceThread::~DeviceThread() {
  std::jthread thread;
  bool is_abandoned = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
    is_abandoned = shared_->is_abandoned;
    thread = std::move(shared_->thread);
    shared_->changed.notify_one();
  }
  if (is_abandoned) {
    thread.detach();
  } else {
    thread.join();
  }
}

std::shared_ptr<const DeviceJob> DeviceThread::run(std::function<void()> prepare, std::function<void()> work) {
  auto job = std::make_shared<DeviceJob>();
  job->prepare_ = std::move(prepare);
  job->work_ = std::move(work);
  const std::lock_guard lock(shared_->mutex);
  shared_->jobs.push_back(job);
  shared_->changed.notify_one();
  return job;
}

void DeviceThread::run_now(std::function<void()> work, const std::function<void()>& check) {
  constexpr auto kInterval = std::chrono::milliseconds(5);
  const std::shared_ptr<const DeviceJob> job = run(std::move(work));
  std::unique_lock lock(shared_->mutex);
  while (!shared_->ended.wait_for(lock, kInterval, [&] { return job->is_done(); })) {
    lock.unlock();
    check();
    lock.lock();
  }
  job->check();
}

void DeviceThread::abandon() {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_abandoned = true;
  shared_->jobs.clear();
}

void DeviceThread::work(Shared& shared) {
  for (;;) {
    std::shared_ptr<DeviceJob> job;
    {
      std::unique_lock lock(shared.mutex);
      shared.changed.wait(lock, [&] { return shared.ends || !shared.jobs.empty(); });
      if (shared.jobs.empty()) return;
      job = std::move(shared.jobs.front());
      shared.jobs.pop_front();
    }
    const VendorCallScope inside;
    try {
      if (job->prepare_) {
        job->prepare_();
        const std::lock_guard lock(shared.mutex);
        if (shared.is_abandoned) continue;
      }
      job->work_();
    } catch (const Error& error) {
      job->failure_ = error;
    } catch (const std::exception& error) {
      job->failure_.emplace(ErrorKind::kInternal, error.what());
    }
    job->prepare_ = job->work_ = nullptr;
    job->done_.store(true, std::memory_order_release);
    const std::lock_guard lock(shared.mutex);
    shared.ended.notify_all();
    if (!shared.is_abandoned) shared.ring();
  }
}

}  // namespace farandole
